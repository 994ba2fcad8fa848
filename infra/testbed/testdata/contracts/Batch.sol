// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// Makes several calls to one contract in one transaction, all or none, and
/// logs something of its own after each when asked to.
contract Batch {
    event Noise(uint256 step);

    function run(address target, bool noisy, bytes[] calldata calls) external {
        for (uint256 i = 0; i < calls.length; i++) {
            (bool ok, bytes memory out) = target.call(calls[i]);
            if (!ok) {
                assembly {
                    revert(add(out, 0x20), mload(out))
                }
            }
            if (noisy) emit Noise(i);
        }
    }
}
