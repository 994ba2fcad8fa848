package x402

import (
	"errors"
	"fmt"

	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

// CheckOrigin says whether proof is payTo's signature of a bare origin such as
// https://api.example.com: a personal message of EIP-191, 65 bytes r, s, v in
// hex. Crawlers show it as proof that the payee owns the service.
func CheckOrigin(origin, proof, payTo string) error {
	payee, err := ParseAddress(payTo)
	if err != nil {
		return fmt.Errorf("payee: %w", err)
	}
	sig, err := decodeHex(proof, keySignature, keySignature)
	if err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	if v := sig[64]; v != 27 && v != 28 {
		return fmt.Errorf("proof: v is %d, must be 27 or 28", v)
	}
	digest := OriginDigest(origin)
	key, _, err := ecdsa.RecoverCompact(append([]byte{sig[64]}, sig[:64]...), digest[:])
	if err != nil {
		return errors.New("proof: no signer can be recovered")
	}
	if signer := KeyAddress(key); signer != payee {
		return fmt.Errorf("proof: signed by %s for this origin, the payee is %s", signer, payee)
	}
	return nil
}

// OriginDigest is what a payee signs to prove that an origin is its (EIP-191).
func OriginDigest(origin string) [32]byte {
	return [32]byte(keccak([]byte(fmt.Sprintf("\x19Ethereum Signed Message:\n%d%s", len(origin), origin))))
}
