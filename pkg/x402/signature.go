package x402

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"golang.org/x/crypto/sha3"
)

// These are type strings of EIP-712 and EIP-3009.
const (
	domainType   = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
	transferType = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)

// Address is an account on an EVM chain.
type Address [20]byte

// ParseAddress parses 0x and 40 hex digits. It accepts any letter case, because EIP-55
// checksums are optional, and clients send addresses with and without them.
func ParseAddress(s string) (Address, error) {
	var a Address
	b, err := decodeHex(s, len(a), len(a))
	copy(a[:], b)
	return a, err
}

// CheckAddress checks an address that a person has entered. It returns nil, or an error that
// says what is wrong. If token is empty, s is the address of a token's contract. Otherwise s
// is the address of an account that receives payments, and token is the contract of the token
// in which the account is paid. An address in mixed case must have the EIP-55 checksum. The
// error text begins with a verb, such as "must".
func CheckAddress(s, token string) error {
	a, err := ParseAddress(s)
	switch {
	case token != "" && strings.EqualFold(s, token):
		return errors.New("is the token's contract: what is sent there is lost")
	case err != nil:
		return errors.New("must be 0x and 40 hexadecimal digits")
	case a == Address{}:
		return errors.New("is the zero address: what is sent there is lost")
	case s != strings.ToLower(s) && s[2:] != strings.ToUpper(s[2:]) && s != a.Checksum():
		return errors.New("has a wrong checksum (EIP-55): a digit or the letter case is mistyped, or copy it in lower case")
	}
	return nil
}

// IsHash reports whether s has the form of a transaction's hash: 0x and 32 bytes in
// hexadecimal, in either letter case.
func IsHash(s string) bool {
	_, err := decodeHex(s, 32, 32)
	return err == nil
}

// String returns the address as 0x and lower-case hex.
func (a Address) String() string { return "0x" + hex.EncodeToString(a[:]) }

// Checksum returns the address in mixed case, with the EIP-55 checksum.
func (a Address) Checksum() string {
	digits := []byte(hex.EncodeToString(a[:]))
	sum := hex.EncodeToString(keccak(digits))
	for i, c := range digits {
		if c >= 'a' && sum[i] >= '8' {
			digits[i] = c - 'a' + 'A'
		}
	}
	return "0x" + string(digits)
}

// ChainID returns the chain's number from a CAIP-2 name such as eip155:8453.
func ChainID(network string) (uint64, error) {
	digits, ok := strings.CutPrefix(network, "eip155:")
	if !ok {
		return 0, fmt.Errorf("network %s is not an eip155 one", excerpt(network))
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || id == 0 || strconv.FormatUint(id, 10) != digits {
		return 0, fmt.Errorf("network %s has no chain id", excerpt(network))
	}
	return id, nil
}

// Domain is the hash of a token's EIP-712 domain.
type Domain [32]byte

// TokenDomain returns the domain separator (EIP-712) of the token in the terms. It fails if
// Network or Asset cannot be parsed.
func (t Terms) TokenDomain() (Domain, error) {
	id, err := ChainID(t.Network)
	if err != nil {
		return Domain{}, err
	}
	asset, err := ParseAddress(t.Asset)
	if err != nil {
		return Domain{}, fmt.Errorf("asset: %w", err)
	}
	return Domain(keccak(
		keccak([]byte(domainType)),
		keccak([]byte(t.Name)),
		keccak([]byte(t.Version)),
		word(new(big.Int).SetUint64(id)),
		padAddress(asset),
	)), nil
}

// Digest returns the hash that the payer signs: the EIP-712 hash of the authorization under
// the token's domain. It covers payer, payee, value, window and nonce.
func (p *Payment) Digest(d Domain) [32]byte {
	message := keccak(
		keccak([]byte(transferType)),
		padAddress(p.From),
		padAddress(p.To),
		word(p.Value),
		word(p.ValidAfter),
		word(p.ValidBefore),
		p.Nonce[:],
	)
	return [32]byte(keccak([]byte{0x19, 0x01}, d[:], message))
}

// errForeign says that a signature cannot be verified locally. The signature comes from a
// contract wallet, or is garbage.
var errForeign = errors.New("signer cannot be recovered locally")

// Check recovers the signer of digest, and returns nil if the signer is the payer. The error
// is errForeign if only the chain can tell, for example because the payer may be a contract
// wallet. Any other error means that the token contract is certain to refuse the signature.
func (p *Payment) Check(digest [32]byte) error {
	if len(p.Signature) != keySignature {
		return errForeign
	}
	v := p.Signature[64]
	var s secp256k1.ModNScalar
	if overflow := s.SetByteSlice(p.Signature[32:64]); overflow {
		return errForeign
	}
	low := !s.IsOverHalfOrder()
	if low && (v == 27 || v == 28) {
		if p.isSignedWith(v, s, digest) {
			return nil
		}
		return errForeign
	}
	// From here on, s is high or v is neither 27 nor 28. If the payer's key has made the
	// signature, the token contract refuses it. Otherwise the payer may be a contract wallet,
	// which may accept any 65 bytes, so only the chain can tell.
	if !low {
		s.Negate()
	}
	switch {
	case !p.isSignedWith(27, s, digest) && !p.isSignedWith(28, s, digest):
		return errForeign
	case v != 27 && v != 28:
		return fmt.Errorf("signature: v is %d, must be 27 or 28", v)
	}
	return errors.New("signature: s is in the upper half of the curve order")
}

// isSignedWith reports whether the payer's key made the signature with this v and s.
func (p *Payment) isSignedWith(v byte, s secp256k1.ModNScalar, digest [32]byte) bool {
	scalar := s.Bytes()
	compact := slices.Concat([]byte{v}, p.Signature[:32], scalar[:])
	key, _, err := ecdsa.RecoverCompact(compact, digest[:])
	return err == nil && KeyAddress(key) == p.From
}

// CheckOrigin returns nil if proof is payTo's signature of a bare origin such as
// https://api.example.com. Otherwise it returns an error that says what is wrong. proof is 65
// bytes (r, s, v) in hex, and signs the origin as a personal message (EIP-191). Crawlers show
// the proof to tell people who owns the service.
func CheckOrigin(origin, proof, payTo string) error {
	payee, err := ParseAddress(payTo)
	if err != nil {
		return fmt.Errorf("payee: %w", err)
	}
	signature, err := decodeHex(proof, keySignature, keySignature)
	if err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	v := signature[64]
	if v != 27 && v != 28 {
		return fmt.Errorf("proof: v is %d, must be 27 or 28", v)
	}
	digest := OriginDigest(origin)
	compact := append([]byte{v}, signature[:64]...)
	key, _, err := ecdsa.RecoverCompact(compact, digest[:])
	if err != nil {
		return errors.New("proof: no signer can be recovered")
	}
	if signer := KeyAddress(key); signer != payee {
		return fmt.Errorf("proof: signed by %s for this origin, the payee is %s", signer, payee)
	}
	return nil
}

// OriginDigest returns the hash that a payee signs (EIP-191) to prove that the payee owns an
// origin.
func OriginDigest(origin string) [32]byte {
	message := fmt.Sprintf("\x19Ethereum Signed Message:\n%d%s", len(origin), origin)
	return [32]byte(keccak([]byte(message)))
}

// KeyAddress returns the address of the account that belongs to a public key.
func KeyAddress(key *secp256k1.PublicKey) Address {
	return Address(keccak(key.SerializeUncompressed()[1:])[12:])
}

// keccak returns the legacy Keccak-256 hash of the joined parts. Ethereum uses this hash.
func keccak(parts ...[]byte) []byte {
	h := sha3.NewLegacyKeccak256()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func padAddress(a Address) []byte { return append(make([]byte, 12), a[:]...) }

func word(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }
