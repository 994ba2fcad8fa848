package ssl

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/cryptobyte"
)

// Numbers that RFC 8446 defines in §4, §5 and §B.
const (
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23

	alertFatal = 2 // the level of a fatal alert

	messageClientHello = 1
	messageServerHello = 2
	messageCertificate = 11
	messageHelloDone   = 14 // RFC 5246 §7.4.5

	extensionVersions = 43

	maxRecord = 16384 + 2048 // the largest payload of an encrypted record in TLS 1.2; in TLS 1.3 it is smaller
)

// flight holds what has been read of a server's first flight, which consists of the messages
// that the server sends before it waits for the client.
type flight struct {
	hasHello       bool // whether a ServerHello was received, which chose the version and the suite
	version, suite uint16
	leaf           []byte // the first certificate of the chain, which need not be valid DER; nil if no certificate was received
	alert          int    // the number of the fatal alert; -1 if no fatal alert was received
	helloDone      bool   // whether a ServerHelloDone was received, after which the server waits for the client
}

// readFlight reads the handshake messages of a server. It stops after the first certificate, a
// fatal alert or a ServerHelloDone. It also stops at the end of the input, at the first bytes
// that are not TLS, and at a record that it cannot decrypt. secret is the
// server_handshake_traffic_secret of RFC 8446 §7.1, which is needed only for TLS 1.3.
func readFlight(input io.Reader, secret []byte) flight {
	f := flight{alert: -1}
	var stream []byte
	var opener *recordOpener
	for f.leaf == nil && f.alert < 0 && !f.helloDone {
		var header [5]byte
		_, err := io.ReadFull(input, header[:])
		kind := header[0]
		payload := make([]byte, binary.BigEndian.Uint16(header[3:]))
		if err != nil || header[1] != 3 || len(payload) > maxRecord {
			break
		}
		if _, err := io.ReadFull(input, payload); err != nil {
			break
		}
		if kind == recordData {
			if opener == nil {
				opener = newRecordOpener(f, secret)
			}
			kind, payload = opener.open(payload)
		}
		switch {
		case kind == recordAlert && len(payload) == 2 && payload[0] == alertFatal:
			f.alert = int(payload[1])
		case kind == recordHandshake:
			stream = f.takeMessages(append(stream, payload...))
		case kind == recordData: // the record could not be decrypted
			return f
		}
	}
	return f
}

// takeMessages takes all complete messages from the beginning of stream and returns the rest.
// From a Certificate message it takes the first certificate, even if the message is
// incomplete.
func (f *flight) takeMessages(stream []byte) []byte {
	for len(stream) >= 4 && f.leaf == nil {
		kind := stream[0]
		size := int(binary.BigEndian.Uint32(stream) & 0xffffff)
		body := cryptobyte.String(stream[4:])
		if kind == messageCertificate && f.hasHello {
			f.leaf = firstCertificate(body[:min(size, len(body))], f.version)
		}
		if size > len(body) {
			break
		}
		switch kind {
		case messageServerHello:
			f.parseHello(body[:size])
		case messageHelloDone:
			f.helloDone = true
		}
		stream = body[size:]
	}
	return stream
}

// parseHello parses a ServerHello (RFC 8446 §4.1.3, RFC 5246 §7.4.1.3). A HelloRetryRequest
// has the same form, so parseHello also parses it. The values of the ServerHello that follows
// then replace those of the HelloRetryRequest.
func (f *flight) parseHello(s cryptobyte.String) {
	var session, extensions cryptobyte.String
	var version, suite uint16
	const randomSize = 32
	if !s.ReadUint16(&version) ||
		!s.Skip(randomSize) ||
		!s.ReadUint8LengthPrefixed(&session) ||
		!s.ReadUint16(&suite) ||
		!s.Skip(1) { // compression
		return
	}
	f.hasHello = true
	f.version = version
	f.suite = suite
	var kind uint16
	var body cryptobyte.String
	s.ReadUint16LengthPrefixed(&extensions)
	for extensions.ReadUint16(&kind) && extensions.ReadUint16LengthPrefixed(&body) {
		if kind == extensionVersions {
			body.ReadUint16(&f.version)
		}
	}
}

// firstCertificate returns the first entry of a Certificate message, or nil if the entry is
// incomplete. The list of entries may be cut off after the first entry, but its announced
// length must be large enough for that entry.
func firstCertificate(body cryptobyte.String, version uint16) []byte {
	if version == tls.VersionTLS13 {
		var context cryptobyte.String
		if !body.ReadUint8LengthPrefixed(&context) {
			return nil
		}
	}
	var list, size uint32
	if !body.ReadUint24(&list) || !body.ReadUint24(&size) {
		return nil
	}
	const sizeOfSize = 3
	if size == 0 || size+sizeOfSize > list {
		return nil
	}
	var der []byte
	if !body.ReadBytes(&der, int(size)) {
		return nil
	}
	return der
}

// recordOpener decrypts the handshake records of a TLS 1.3 server (RFC 8446 §5).
type recordOpener struct {
	aead     cipher.AEAD
	iv       []byte
	sequence uint64 // the sequence number of the next record
}

// newRecordOpener returns a recordOpener for the version and suite that the server chose. It
// returns nil if they are not those of TLS 1.3, or if the suite needs a secret of another size.
func newRecordOpener(f flight, secret []byte) *recordOpener {
	newHash := sha256.New
	size := 16
	newAEAD := newGCM
	switch f.suite {
	case tls.TLS_AES_128_GCM_SHA256:
	case tls.TLS_AES_256_GCM_SHA384:
		newHash = sha512.New384
		size = 32
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		size = chacha20poly1305.KeySize
		newAEAD = chacha20poly1305.New
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
	return &recordOpener{aead: aead, iv: expandLabel(newHash, secret, "iv", 12)}
}

// open decrypts the payload of the next record. It returns the content and the type that was
// encrypted with it (RFC 8446 §5.2). If the record cannot be decrypted, or o is nil, the type
// is recordData.
func (o *recordOpener) open(payload []byte) (kind uint8, content []byte) {
	if o == nil {
		return recordData, nil
	}
	nonce := slices.Clone(o.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, o.sequence) {
		nonce[4+i] ^= b
	}
	o.sequence++
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
	out, _ := hkdf.Expand(h, secret, info, size) // fails only for a size far beyond those that newRecordOpener passes
	return out
}

// cipherSuite is a cipher suite with its IANA number and name.
type cipherSuite struct {
	id   uint16
	name string
}

// cipherSuites returns the cipher suites of TLS 1.2 and earlier in which the server sends a
// certificate. The strong suites come first. Suites that also need a shared key are left out.
func cipherSuites() (all []cipherSuite) {
	const (
		ecExchanges  = "ECDHE_ECDSA ECDH_ECDSA ECDHE_RSA ECDH_RSA"
		dhExchanges  = "RSA DHE_RSA DH_RSA DHE_DSS DH_DSS"
		oldExchanges = "RSA DH_DSS DH_RSA DHE_DSS DHE_RSA"
	)
	for _, block := range []struct {
		first              uint16 // the number of the first suite; each further suite has the next number
		exchanges, ciphers string // the parts of the suites' names; the numbers go through all ciphers with the first key exchange, then all ciphers with the second, and so on
	}{
		{0xc02b, ecExchanges, "AES_128_GCM_SHA256 AES_256_GCM_SHA384"},
		{0x009c, dhExchanges, "AES_128_GCM_SHA256 AES_256_GCM_SHA384"},
		{0xcca8, "ECDHE_RSA ECDHE_ECDSA DHE_RSA", "CHACHA20_POLY1305_SHA256"},
		{0xc0ac, "ECDHE_ECDSA", "AES_128_CCM AES_256_CCM AES_128_CCM_8 AES_256_CCM_8"},
		{0xc09c, "RSA DHE_RSA", "AES_128_CCM AES_256_CCM"},
		{0xc0a0, "RSA DHE_RSA", "AES_128_CCM_8 AES_256_CCM_8"},
		{0xc086, ecExchanges, "CAMELLIA_128_GCM_SHA256 CAMELLIA_256_GCM_SHA384"},
		{0xc07a, dhExchanges, "CAMELLIA_128_GCM_SHA256 CAMELLIA_256_GCM_SHA384"},
		{0xc05c, ecExchanges, "ARIA_128_GCM_SHA256 ARIA_256_GCM_SHA384"},
		{0xc050, dhExchanges, "ARIA_128_GCM_SHA256 ARIA_256_GCM_SHA384"},
		{0xc023, ecExchanges, "AES_128_CBC_SHA256 AES_256_CBC_SHA384"},
		{0x003c, "RSA", "AES_128_CBC_SHA256 AES_256_CBC_SHA256"},
		{0x003e, "DH_DSS DH_RSA DHE_DSS", "AES_128_CBC_SHA256"},
		{0x0067, "DHE_RSA", "AES_128_CBC_SHA256"},
		{0x0068, "DH_DSS DH_RSA DHE_DSS DHE_RSA", "AES_256_CBC_SHA256"},
		{0x002f, oldExchanges, "AES_128_CBC_SHA"},
		{0x0035, oldExchanges, "AES_256_CBC_SHA"},
		{0xc072, ecExchanges, "CAMELLIA_128_CBC_SHA256 CAMELLIA_256_CBC_SHA384"},
		{0x00ba, oldExchanges, "CAMELLIA_128_CBC_SHA256"},
		{0x00c0, oldExchanges, "CAMELLIA_256_CBC_SHA256"},
		{0x0041, oldExchanges, "CAMELLIA_128_CBC_SHA"},
		{0x0084, oldExchanges, "CAMELLIA_256_CBC_SHA"},
		{0xc048, ecExchanges, "ARIA_128_CBC_SHA256 ARIA_256_CBC_SHA384"},
		{0xc03c, oldExchanges, "ARIA_128_CBC_SHA256 ARIA_256_CBC_SHA384"},
		{0xc100, "GOSTR341112_256", "KUZNYECHIK_CTR_OMAC MAGMA_CTR_OMAC 28147_CNT_IMIT"},
		{0x0080, "GOSTR341094 GOSTR341001", "28147_CNT_IMIT"},
		{0x0096, oldExchanges, "SEED_CBC_SHA"},
		{0xc001, "ECDH_ECDSA ECDHE_ECDSA ECDH_RSA ECDHE_RSA", "NULL_SHA RC4_128_SHA 3DES_EDE_CBC_SHA AES_128_CBC_SHA AES_256_CBC_SHA"},
		{0x000b, "DH_DSS DH_RSA DHE_DSS DHE_RSA", "EXPORT_WITH_DES40_CBC_SHA DES_CBC_SHA 3DES_EDE_CBC_SHA"},
		{0x0001, "RSA", "NULL_MD5 NULL_SHA EXPORT_WITH_RC4_40_MD5 RC4_128_MD5 RC4_128_SHA EXPORT_WITH_RC2_CBC_40_MD5 IDEA_CBC_SHA " +
			"EXPORT_WITH_DES40_CBC_SHA DES_CBC_SHA 3DES_EDE_CBC_SHA"},
		{0x0082, "GOSTR341094 GOSTR341001", "NULL_GOSTR3411"},
		{0x003b, "RSA", "NULL_SHA256"},
	} {
		id := block.first
		for exchange := range strings.FieldsSeq(block.exchanges) {
			for cipher := range strings.FieldsSeq(block.ciphers) {
				if !strings.HasPrefix(cipher, "EXPORT_") {
					cipher = "WITH_" + cipher
				}
				all = append(all, cipherSuite{id, "TLS_" + exchange + "_" + cipher})
				id++
			}
		}
	}
	return all
}

// suiteName returns the IANA name of a cipher suite. It returns "" if it does not know the
// suite, or if a server sends no certificate in the suite.
func suiteName(id uint16) string {
	name := tls.CipherSuiteName(id) // for the suites of TLS 1.3, which the function cipherSuites leaves out
	if strings.HasPrefix(name, "TLS_") {
		return name
	}
	for _, s := range cipherSuites() {
		if s.id == id {
			return s.name
		}
	}
	return ""
}

// Extensions of a ClientHello (RFC 6066 §3, RFC 8422 §5.1, RFC 5246 §7.4.1.4, RFC 7627
// §5.1, RFC 5746 §3.2).
const (
	extensionName           = 0
	extensionCurves         = 10
	extensionPoints         = 11
	extensionSignatures     = 13
	extensionExtendedMaster = 23
	extensionRenegotiation  = 0xff01
)

// widestHello returns a record with a TLS 1.2 ClientHello that offers as much as possible: the
// name of the host (SNI), every cipher suite that the function cipherSuites returns, and every
// curve and signature scheme with an IANA number. This package cannot complete a handshake
// that begins with this hello.
func widestHello(domain string) []byte {
	var ids []uint16
	for _, s := range cipherSuites() {
		ids = append(ids, s.id)
	}
	curves := []uint16{29, 23, 24, 25} // the curves that servers use come first
	for id := uint16(1); id < 42; id++ {
		if !slices.Contains(curves, id) {
			curves = append(curves, id)
		}
	}
	curves = append(curves, 0xff01, 0xff02) // with 0xff01 and 0xff02, the server may use any curve, which it then describes in full
	schemes := []uint16{
		// The schemes that servers use come first.
		0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0804, 0x0805, 0x0806, 0x0809, 0x080a, 0x080b, 0x0401, 0x0501, 0x0601,
		// Schemes of GOST, from RFC 9189 §7.1 and its drafts.
		0x0840, 0x0841, 0xeded, 0xeeee, 0xefef,
		// Old schemes with DSA, SHA-224, SHA-1 or MD5.
		0x0402, 0x0502, 0x0602, 0x0303, 0x0301, 0x0302, 0x0203, 0x0201, 0x0202, 0x0101,
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never returns an error
	withLength := func(width int, parts ...[]byte) []byte {
		body := slices.Concat(parts...)
		size := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
		return append(size[4-width:], body...)
	}
	appendNumbers := func(numbers ...uint16) (b []byte) {
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint16(b, n)
		}
		return b
	}
	extension := func(kind uint16, body []byte) []byte {
		return slices.Concat(appendNumbers(kind), withLength(2, body))
	}
	hello := slices.Concat(
		appendNumbers(tls.VersionTLS12), random, []byte{0}, // no session ID
		withLength(2, appendNumbers(ids...)), []byte{1, 0}, // no compression
		withLength(2,
			extension(extensionName, withLength(2, []byte{0}, withLength(2, []byte(domain)))), // host_name
			extension(extensionCurves, withLength(2, appendNumbers(curves...))),
			extension(extensionPoints, []byte{3, 0, 1, 2}),
			extension(extensionSignatures, withLength(2, appendNumbers(schemes...))),
			extension(extensionExtendedMaster, nil),
			extension(extensionRenegotiation, []byte{0})))
	return append([]byte{recordHandshake, 3, 1}, withLength(2, []byte{messageClientHello}, withLength(3, hello))...)
}

// maxFlight is the largest number of bytes that sendWidestHello reads of the answer. It is
// twice the size of the largest Certificate message that crypto/tls accepts.
const maxFlight = 512 << 10

// sendWidestHello sends the widest hello, reads the answer up to the certificate, and closes
// conn. It returns an error if it receives no certificate before ctx ends.
func sendWidestHello(ctx context.Context, conn net.Conn, domain string) (flight, error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err := conn.Write(widestHello(domain)) // ignore the error for now: even if the write fails, the server may have sent the reason, so read it
	f := readFlight(io.LimitReader(conn, maxFlight), nil)
	if f.leaf == nil {
		return f, fmt.Errorf("ssl: no certificate after alert %d: %w", f.alert, errors.Join(err, errNotACertificate))
	}
	return f, nil
}
