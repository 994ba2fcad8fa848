// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// A contract wallet (ERC-1271) with one owner. Its signatures are not those of
/// an account: a version byte, 1, and then the owner's r, s and v.
contract Wallet {
    address public immutable owner;

    constructor(address owner_) {
        owner = owner_;
    }

    function isValidSignature(bytes32 digest, bytes calldata signature) external view returns (bytes4) {
        if (signature.length != 66 || signature[0] != 0x01) {
            return 0xffffffff;
        }
        address signer = ecrecover(digest, uint8(signature[65]), bytes32(signature[1:33]), bytes32(signature[33:65]));
        return signer != address(0) && signer == owner ? this.isValidSignature.selector : bytes4(0xffffffff);
    }
}
