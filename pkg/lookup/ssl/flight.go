package ssl

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"hash"
	"io"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/cryptobyte"
)

// Numbers of RFC 8446 §4, §5 and §B.
const (
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23

	fatal = 2 // alert level

	messageClientHello = 1
	messageServerHello = 2
	messageCertificate = 11
	messageHelloDone   = 14 // RFC 5246 §7.4.5

	extensionVersions = 43

	maxRecord = 16384 + 2048 // payload of a protected record, TLS 1.2's larger one
)

// flight is what a server said in its first flight, as far as it was read.
type flight struct {
	hello          bool // a ServerHello came; version and suite are its choice
	version, suite uint16
	leaf           []byte // the first certificate, DER or not; nil if none came
	alert          int    // the fatal alert in it; -1 if none
	done           bool   // a ServerHelloDone came: it is our turn
}

// readFlight reads what a server sends in a handshake. secret is the
// server_handshake_traffic_secret of RFC 8446 §7.1; without it nothing behind
// a TLS 1.3 ServerHello can be read. Reading ends with the first certificate, whose
// message need not be there in full, or fatal alert, where the server waits for an
// answer, at the end of in, or at the first thing that is not TLS.
func readFlight(in io.Reader, secret []byte) flight {
	f := flight{alert: -1}
	var stream []byte
	var key *opener
	for f.leaf == nil && f.alert < 0 && !f.done {
		var header [5]byte
		if _, err := io.ReadFull(in, header[:]); err != nil {
			break
		}
		kind, payload := header[0], make([]byte, binary.BigEndian.Uint16(header[3:]))
		if header[1] != 3 || len(payload) > maxRecord {
			break
		}
		if _, err := io.ReadFull(in, payload); err != nil {
			break
		}
		if kind == recordData {
			if key == nil {
				key = newOpener(f, secret)
			}
			kind, payload = key.open(payload)
		}
		switch {
		case kind == recordAlert && len(payload) == 2 && payload[0] == fatal:
			f.alert = int(payload[1])
		case kind == recordHandshake:
			stream = f.read(append(stream, payload...))
		case kind == recordData: // that cannot be opened
			return f
		}
	}
	return f
}

// read takes whole messages off the stream and returns what is left of it.
func (f *flight) read(stream []byte) []byte {
	for len(stream) >= 4 && f.leaf == nil {
		kind, size := stream[0], int(binary.BigEndian.Uint32(stream)&0xffffff)
		body := cryptobyte.String(stream[4:])
		if kind == messageCertificate && f.hello {
			f.leaf = firstCertificate(body[:min(size, len(body))], f.version)
		}
		if size > len(body) {
			break
		}
		switch kind {
		case messageServerHello:
			f.readHello(body[:size])
		case messageHelloDone:
			f.done = true
		}
		stream = body[size:]
	}
	return stream
}

// readHello reads a ServerHello (RFC 8446 §4.1.3, RFC 5246 §7.4.1.3). A
// HelloRetryRequest looks like one and makes the same choice; the ServerHello
// after it counts.
func (f *flight) readHello(s cryptobyte.String) {
	var session, extensions cryptobyte.String
	var version, suite uint16
	if !s.ReadUint16(&version) || !s.Skip(32) || !s.ReadUint8LengthPrefixed(&session) ||
		!s.ReadUint16(&suite) || !s.Skip(1) {
		return
	}
	f.hello, f.version, f.suite = true, version, suite
	var kind uint16
	var body cryptobyte.String
	s.ReadUint16LengthPrefixed(&extensions)
	for extensions.ReadUint16(&kind) && extensions.ReadUint16LengthPrefixed(&body) {
		if kind == extensionVersions {
			body.ReadUint16(&f.version)
		}
	}
}

// firstCertificate returns the first entry of a Certificate message, nil while
// it is not there in full. Lengths of what is around it only have to leave
// room for it.
func firstCertificate(body cryptobyte.String, version uint16) (der []byte) {
	var context cryptobyte.String
	var list, size uint32
	if version == tls.VersionTLS13 && !body.ReadUint8LengthPrefixed(&context) ||
		!body.ReadUint24(&list) || !body.ReadUint24(&size) || size == 0 || size+3 > list || !body.ReadBytes(&der, int(size)) {
		return nil
	}
	return der
}

// opener decrypts the records of a TLS 1.3 server's handshake (RFC 8446 §5).
type opener struct {
	aead cipher.AEAD
	iv   []byte
	next uint64 // sequence number
}

// newOpener returns nil for a flight that is not TLS 1.3, an unknown suite, or a
// secret of the wrong length.
func newOpener(f flight, secret []byte) *opener {
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
	if f.version != tls.VersionTLS13 || len(secret) != newHash().Size() {
		return nil
	}
	aead, err := newAEAD(expandLabel(newHash, secret, "key", size))
	if err != nil {
		return nil
	}
	return &opener{aead: aead, iv: expandLabel(newHash, secret, "iv", 12)}
}

// open decrypts one record's payload and returns the type and the content inside
// (RFC 8446 §5.2); recordData for one that it cannot decrypt.
func (o *opener) open(payload []byte) (kind uint8, content []byte) {
	if o == nil {
		return recordData, nil
	}
	nonce := slices.Clone(o.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, o.next) {
		nonce[4+i] ^= b
	}
	o.next++
	header := binary.BigEndian.AppendUint16([]byte{recordData, 3, 3}, uint16(len(payload)))
	plain, err := o.aead.Open(nil, nonce, payload, header)
	plain = bytes.TrimRight(plain, "\x00")
	if err != nil || len(plain) == 0 {
		return recordData, nil
	}
	return plain[len(plain)-1], plain[:len(plain)-1]
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// expandLabel is HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
func expandLabel(h func() hash.Hash, secret []byte, label string, size int) []byte {
	label = "tls13 " + label
	info := string([]byte{0, byte(size), byte(len(label))}) + label + "\x00"
	out, _ := hkdf.Expand(h, secret, info, size) // fails for sizes above those here
	return out
}
