package ssl

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"hash"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/cryptobyte"
)

// opener decrypts the records of a TLS 1.3 server's handshake (RFC 8446 §5).
type opener struct {
	aead cipher.AEAD
	iv   []byte
	next uint64 // sequence number
}

// newOpener is nil for a flight that is not TLS 1.3, an unknown suite, or a
// secret of the wrong length.
func newOpener(f flight, secret []byte) *opener {
	if f.version != tls.VersionTLS13 {
		return nil
	}
	newHash, size, newAEAD := sha256.New, 16, newGCM
	switch f.suite {
	case tls.TLS_AES_128_GCM_SHA256:
	case tls.TLS_AES_256_GCM_SHA384:
		newHash, size = sha512.New384, 32
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		size, newAEAD = chacha20poly1305.KeySize, chacha20poly1305.New
	default:
		return nil
	}
	if len(secret) != newHash().Size() {
		return nil
	}
	key, err := expandLabel(newHash, secret, "key", size)
	if err != nil {
		return nil
	}
	iv, err := expandLabel(newHash, secret, "iv", 12)
	if err != nil {
		return nil
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil
	}
	return &opener{aead: aead, iv: iv}
}

// open decrypts one record's payload and returns the type and the content
// inside (RFC 8446 §5.2).
func (o *opener) open(payload []byte) (kind uint8, content []byte, ok bool) {
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint64(nonce[4:], o.next)
	for i := range nonce {
		nonce[i] ^= o.iv[i]
	}
	o.next++
	header := binary.BigEndian.AppendUint16([]byte{recordData, 3, 3}, uint16(len(payload)))
	plain, err := o.aead.Open(nil, nonce, payload, header)
	if err != nil {
		return 0, nil, false
	}
	for len(plain) > 0 && plain[len(plain)-1] == 0 {
		plain = plain[:len(plain)-1]
	}
	if len(plain) == 0 {
		return 0, nil, false
	}
	return plain[len(plain)-1], plain[:len(plain)-1], true
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// expandLabel is HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
func expandLabel(h func() hash.Hash, secret []byte, label string, size int) ([]byte, error) {
	var b cryptobyte.Builder
	b.AddUint16(uint16(size))
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte("tls13 " + label)) })
	b.AddUint8(0)
	info, err := b.Bytes()
	if err != nil {
		return nil, err
	}
	return hkdf.Expand(h, secret, string(info), size)
}
