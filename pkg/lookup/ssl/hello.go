package ssl

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"
)

// suites are the cipher suites of TLS 1.2 and earlier with which a server shows a
// certificate, by their numbers and names of IANA, strong ones first. Those that want
// a shared key besides are left out.
func suites() iter.Seq2[uint16, string] {
	const (
		curves = "ECDHE_ECDSA ECDH_ECDSA ECDHE_RSA ECDH_RSA"
		fields = "RSA DHE_RSA DH_RSA DHE_DSS DH_DSS"
		older  = "RSA DH_DSS DH_RSA DHE_DSS DHE_RSA"
	)
	return func(yield func(uint16, string) bool) {
		for _, block := range []struct {
			first        uint16
			keys, bodies string // numbered in this order: all bodies of the first key, and so on
		}{
			{0xc02b, curves, "AES_128_GCM_SHA256 AES_256_GCM_SHA384"},
			{0x009c, fields, "AES_128_GCM_SHA256 AES_256_GCM_SHA384"},
			{0xcca8, "ECDHE_RSA ECDHE_ECDSA DHE_RSA", "CHACHA20_POLY1305_SHA256"},
			{0xc0ac, "ECDHE_ECDSA", "AES_128_CCM AES_256_CCM AES_128_CCM_8 AES_256_CCM_8"},
			{0xc09c, "RSA DHE_RSA", "AES_128_CCM AES_256_CCM"},
			{0xc0a0, "RSA DHE_RSA", "AES_128_CCM_8 AES_256_CCM_8"},
			{0xc086, curves, "CAMELLIA_128_GCM_SHA256 CAMELLIA_256_GCM_SHA384"},
			{0xc07a, fields, "CAMELLIA_128_GCM_SHA256 CAMELLIA_256_GCM_SHA384"},
			{0xc05c, curves, "ARIA_128_GCM_SHA256 ARIA_256_GCM_SHA384"},
			{0xc050, fields, "ARIA_128_GCM_SHA256 ARIA_256_GCM_SHA384"},
			{0xc023, curves, "AES_128_CBC_SHA256 AES_256_CBC_SHA384"},
			{0x003c, "RSA", "AES_128_CBC_SHA256 AES_256_CBC_SHA256"},
			{0x003e, "DH_DSS DH_RSA DHE_DSS", "AES_128_CBC_SHA256"},
			{0x0067, "DHE_RSA", "AES_128_CBC_SHA256"},
			{0x0068, "DH_DSS DH_RSA DHE_DSS DHE_RSA", "AES_256_CBC_SHA256"},
			{0x002f, older, "AES_128_CBC_SHA"},
			{0x0035, older, "AES_256_CBC_SHA"},
			{0xc072, curves, "CAMELLIA_128_CBC_SHA256 CAMELLIA_256_CBC_SHA384"},
			{0x00ba, older, "CAMELLIA_128_CBC_SHA256"},
			{0x00c0, older, "CAMELLIA_256_CBC_SHA256"},
			{0x0041, older, "CAMELLIA_128_CBC_SHA"},
			{0x0084, older, "CAMELLIA_256_CBC_SHA"},
			{0xc048, curves, "ARIA_128_CBC_SHA256 ARIA_256_CBC_SHA384"},
			{0xc03c, older, "ARIA_128_CBC_SHA256 ARIA_256_CBC_SHA384"},
			{0xc100, "GOSTR341112_256", "KUZNYECHIK_CTR_OMAC MAGMA_CTR_OMAC 28147_CNT_IMIT"},
			{0x0080, "GOSTR341094 GOSTR341001", "28147_CNT_IMIT"},
			{0x0096, older, "SEED_CBC_SHA"},
			{0xc001, "ECDH_ECDSA ECDHE_ECDSA ECDH_RSA ECDHE_RSA", "NULL_SHA RC4_128_SHA 3DES_EDE_CBC_SHA AES_128_CBC_SHA AES_256_CBC_SHA"},
			{0x000b, "DH_DSS DH_RSA DHE_DSS DHE_RSA", "EXPORT_WITH_DES40_CBC_SHA DES_CBC_SHA 3DES_EDE_CBC_SHA"},
			{0x0001, "RSA", "NULL_MD5 NULL_SHA EXPORT_WITH_RC4_40_MD5 RC4_128_MD5 RC4_128_SHA EXPORT_WITH_RC2_CBC_40_MD5 IDEA_CBC_SHA " +
				"EXPORT_WITH_DES40_CBC_SHA DES_CBC_SHA 3DES_EDE_CBC_SHA"},
			{0x0082, "GOSTR341094 GOSTR341001", "NULL_GOSTR3411"},
			{0x003b, "RSA", "NULL_SHA256"},
		} {
			id := block.first
			for key := range strings.FieldsSeq(block.keys) {
				for body := range strings.FieldsSeq(block.bodies) {
					if !strings.HasPrefix(body, "EXPORT_") {
						body = "WITH_" + body
					}
					if !yield(id, "TLS_"+key+"_"+body) {
						return
					}
					id++
				}
			}
		}
	}
}

// suiteName is the IANA name of a cipher suite, "" for one without a certificate.
func suiteName(suite uint16) string {
	name := tls.CipherSuiteName(suite) // the only ones here of TLS 1.3
	if !strings.HasPrefix(name, "TLS_") {
		name = maps.Collect(suites())[suite]
	}
	return name
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

// widest is a TLS 1.2 ClientHello, in its record, that a server which shows its
// certificate at all has something in common with: every suite, curve and signature
// scheme that IANA has numbers for, and SNI. A handshake that begins with it cannot be
// completed.
func widest(domain string) []byte {
	var ids []uint16
	for id := range suites() {
		ids = append(ids, id)
	}
	curves := []uint16{29, 23, 24, 25} // in use
	for id := uint16(1); id < 42; id++ {
		if !slices.Contains(curves, id) {
			curves = append(curves, id)
		}
	}
	curves = append(curves, 0xff01, 0xff02) // curves that a server writes out
	schemes := []uint16{
		0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0804, 0x0805, 0x0806, 0x0809, 0x080a, 0x080b, 0x0401, 0x0501, 0x0601, // in use
		0x0840, 0x0841, 0xeded, 0xeeee, 0xefef, // GOST: RFC 9189 §7.1, and its drafts
		0x0402, 0x0502, 0x0602, 0x0303, 0x0301, 0x0302, 0x0203, 0x0201, 0x0202, 0x0101, // DSA, SHA-224, SHA-1, MD5
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	sized := func(width int, parts ...[]byte) []byte {
		body := slices.Concat(parts...)
		size := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
		return append(size[4-width:], body...)
	}
	list := func(numbers ...uint16) (b []byte) {
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint16(b, n)
		}
		return b
	}
	extension := func(kind uint16, body []byte) []byte { return slices.Concat(list(kind), sized(2, body)) }
	hello := slices.Concat(
		list(tls.VersionTLS12), random, []byte{0}, // no session
		sized(2, list(ids...)), []byte{1, 0}, // no compression
		sized(2,
			extension(extensionName, sized(2, []byte{0}, sized(2, []byte(domain)))), // host_name
			extension(extensionCurves, sized(2, list(curves...))),
			extension(extensionPoints, []byte{3, 0, 1, 2}),
			extension(extensionSignatures, sized(2, list(schemes...))),
			extension(extensionExtendedMaster, nil),
			extension(extensionRenegotiation, []byte{0})))
	return append([]byte{recordHandshake, 3, 1}, sized(2, []byte{messageClientHello}, sized(3, hello))...)
}

// maxFlight bounds what is read of an answer to the widest hello. The largest
// Certificate message that crypto/tls takes is 256 KiB; a chain of that size
// in records of no more than its own overhead still fits.
const maxFlight = 512 << 10

// greet sends the widest hello, reads what the server answers up to its certificate,
// and closes conn. It fails when no certificate came, in time or at all.
func greet(ctx context.Context, conn net.Conn, domain string) (flight, error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err := conn.Write(widest(domain)) // a server that does not listen may have said why
	f := readFlight(io.LimitReader(conn, maxFlight), nil)
	if f.leaf == nil {
		return f, fmt.Errorf("ssl: no certificate after alert %d: %w", f.alert, errors.Join(err, errNotACertificate))
	}
	return f, nil
}
