package simnet

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// certificateHosts are about certificates that libraries refuse, and about
// connections that show one and fail.
func certificateHosts() []host {
	var all []host
	for _, part := range []map[string]server{oddCertificates(), oddNames(), oddChains(), oddKeys(), oddConnections()} {
		for name, s := range part {
			all = append(all, host{name: name + ".example.com", serve: s})
		}
	}
	return all
}

// oddCertificates are leaves whose parts are not what RFC 5280 wants.
func oddCertificates() map[string]server {
	serial := func(hex string) piece { return func(p *pieces) { p.serial = der(0x02, unhex(hex)) } }
	times := func(tag byte, from, to string) piece {
		return func(p *pieces) { p.validity = der(0x30, der(tag, []byte(from)), der(tag, []byte(to))) }
	}
	algorithm := func(id string) piece {
		return func(p *pieces) { p.inner = der(0x30, oid(id)); p.outer = p.inner }
	}
	return map[string]server{
		"negative":    made(serial("ff7f")),
		"zeroserial":  made(serial("00")),
		"longserial":  made(serial("00" + strings.Repeat("ab", 30))),
		"padserial":   made(serial("000001")),
		"version1":    made(func(p *pieces) { p.version, p.rest = nil, nil }),
		"version4":    made(func(p *pieces) { p.version = unhex("a003020103") }),
		"mixedalgo":   made(func(p *pieces) { p.outer = der(0x30, oid("1.2.840.113549.1.1.11")) }),
		"unknownalgo": made(algorithm("1.2.3.4.5")),
		"md5algo":     made(algorithm("1.2.840.113549.1.1.4")),
		"sha1algo":    made(algorithm("1.2.840.113549.1.1.5")),
		"trailing":    made(func(p *pieces) { p.after = []byte("trailing") }),
		"twicesame":   made(func(p *pieces) { e := extension("1.2.3.4", der(0x05)); p.rest = extensions(e, e) }),
		"fraction":    made(times(0x18, "20260101000000.5Z", "20360101000000.25Z")),
		"noseconds":   made(times(0x17, "2601010000Z", "3601010000Z")),
		"offset":      made(times(0x17, "260101000000+0100", "360101000000-0130")),
		"farfuture":   made(times(0x18, "20260101000000Z", "99991231235959Z")),
		"longago":     made(times(0x17, "500101000000Z", "991231235959Z")),
		"shapeless":   made(func(p *pieces) { *p = pieces{after: nil} }),
	}
}

// oddNames are subjects and alternative names.
func oddNames() map[string]server {
	subject := func(rdns ...[]byte) piece { return func(p *pieces) { p.subject = der(0x30, rdns...) } }
	cn := func(tag byte, value string) piece { return subject(rdn("2.5.4.3", der(tag, []byte(value)))) }
	names := func(list ...[]byte) piece { return func(p *pieces) { p.rest = extensions(sans(list...)) } }
	lots := func(n int) piece {
		return func(p *pieces) {
			list := make([][]byte, n)
			for i := range list {
				list[i] = dnsName(fmt.Sprintf("n%d.example.com", i))
			}
			p.rest = extensions(sans(list...))
		}
	}
	return map[string]server{
		"nosubject": made(subject()),
		"bmpname":   made(cn(0x1e, "\x03\xa9")),
		"t61name":   made(cn(0x14, "caf\xe9")),
		"universal": made(cn(0x1c, "\x00\x00\x03\xa9")),
		"printable": made(cn(0x13, "a_b@c")),
		"badutf8":   made(cn(0x0c, "a\xff")),
		"nulname":   made(cn(0x0c, "a\x00b\nc")),
		"escapes":   made(cn(0x0c, ` #a,b+c"d\e<f>;g `)),
		"fullname": made(subject(rdn("2.5.4.6", der(0x13, []byte("DE"))), rdn("0.9.2342.19200300.100.1.25", der(0x16, []byte("example"))),
			rdn("2.5.4.97", der(0x0c, []byte("VATDE-1"))), rdn("1.2.840.113549.1.9.1", der(0x16, []byte("a@example.com"))), rdn("0.9.2342.19200300.100.1.1", der(0x0c, []byte("u"))))),
		"multirdn":  made(subject(der(0x31, der(0x30, oid("2.5.4.3"), der(0x0c, []byte("a"))), der(0x30, oid("2.5.4.11"), der(0x0c, []byte("b")))))),
		"emptysan":  made(names()),
		"latinsan":  made(names(dnsName("caf\xe9.example.com"), dnsName("latinsan.example.com"))),
		"oddsans":   made(names(dnsName("a\x00b"), dnsName("https://x/"), dnsName("*.*.x"), dnsName("oddsans.example.com."), dnsName("ODDSANS.example.com"))),
		"ipsan":     made(names(der(0x87, []byte{1, 2, 3}), dnsName("ipsan.example.com"))),
		"urisan":    made(names(der(0x86, []byte("http://[::1")), dnsName("urisan.example.com"))),
		"mixedsan":  made(names(der(0x81, []byte("a@example.com")), dnsName("mixedsan.example.com"), der(0x87, []byte{1, 2, 3, 4}), dnsName("*.mixedsan.example.com"))),
		"deepwild":  made(names(dnsName("*.com"), dnsName("deep*.example.com"), dnsName("*.*.com"))),
		"thousand":  made(lots(1000)),
		"overbound": made(lots(9000)),
		"huge":      made(lots(30000)),
	}
}

// oddChains are chains that cannot be parsed as a whole.
func oddChains() map[string]server {
	junk := []byte("not a certificate")
	padded := append(slices.Clone(handmade("padded.example.net")), 0)
	return map[string]server{
		"junkchain":   shows(tls.VersionTLS13, followed(junk)),
		"junkchain12": shows(tls.VersionTLS12, followed(junk)),
		"junkchain11": shows(tls.VersionTLS11, followed(junk)),
		"padchain":    shows(tls.VersionTLS13, followed(padded)),
		"longchain":   shows(tls.VersionTLS13, followed(slices.Repeat([][]byte{handmade("long.example.net")}, 200)...)),
		"junkleaf":    shows(tls.VersionTLS13, func(*authority, string) [][]byte { return [][]byte{junk} }),
		"reversed":    shows(tls.VersionTLS13, func(ca *authority, name string) [][]byte { return [][]byte{ca.Cert.Raw, handmade(name)} }),
		"selfsigned": func(_ *authority, name string) func(net.Conn) {
			own := &authority{Key: handKey()}
			template := &x509.Certificate{SerialNumber: big.NewInt(7), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
			raw, err := x509.CreateCertificate(rand.Reader, template, template, own.Key.Public(), own.Key)
			if err != nil {
				panic(err) // a mistake here
			}
			return shows(tls.VersionTLS13, func(*authority, string) [][]byte { return [][]byte{raw} })(own, name)
		},
	}
}

// oddKeys are leaves with keys that a library refuses before the leaf is seen,
// and leaves whose key the server does not have.
func oddKeys() map[string]server {
	rsaKey := func(bits int) piece {
		return func(p *pieces) {
			modulus := make([]byte, bits/8)
			_, _ = rand.Read(modulus) // never fails
			modulus[0] |= 0x80
			public := der(0x30, der(0x02, append([]byte{0}, modulus...)), unhex("0203010001"))
			p.key = der(0x30, der(0x30, oid("1.2.840.113549.1.1.1"), der(0x05)), der(0x03, []byte{0}, public))
		}
	}
	explicit := func(p *pieces) { // EC parameters spelled out, and cut short
		p.key = der(0x30, der(0x30, oid("1.2.840.10045.2.1"), der(0x30, unhex("020101"))), der(0x03, make([]byte, 66)))
	}
	unknown := func(p *pieces) { p.key = der(0x30, der(0x30, oid("1.2.3.4")), der(0x03, make([]byte, 33))) }
	return map[string]server{
		"rsa9216": made(rsaKey(9216)), "rsa9216old": made12(rsaKey(9216)), "rsa512": made(rsaKey(512)), "rsa1024": made(rsaKey(1024)),
		"explicit": made(explicit), "unknownkey": made(unknown), "wrongkey": made(otherKey), "wrongkey12": made12(otherKey),
		"p384": curve(elliptic.P384()), "p521": curve(elliptic.P521()), "p224": curve(elliptic.P224()), "ed25519": edwards(), "rsa": withRSA(),
	}
}

// otherKey is a public key whose private key the server does not have.
func otherKey(p *pieces) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	if p.key, err = x509.MarshalPKIXPublicKey(key.Public()); err != nil {
		panic(err) // of a key of our own
	}
}

// keyed serves a certificate of the authority for a key.
func keyed(key any, public any, change ...func(*tls.Config)) server {
	return func(ca *authority, name string) func(net.Conn) {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(0x51), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
		raw, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, public, ca.Key)
		if err != nil {
			panic(err) // a mistake in the table
		}
		config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS10}
		for _, c := range change {
			c(config)
		}
		return func(conn net.Conn) {
			secure := tls.Server(conn, config)
			if secure.Handshake() == nil {
				answer(secure, ok())
			}
		}
	}
}

func curve(c elliptic.Curve) server {
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	return keyed(key, key.Public(), only(tls.VersionTLS12))
}

func edwards() server {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	return keyed(key, public)
}

var sharedRSA = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	return key
})

func withRSA(suites ...uint16) server {
	return keyed(sharedRSA(), sharedRSA().Public(), func(c *tls.Config) {
		if len(suites) > 0 {
			c.CipherSuites, c.MaxVersion = suites, tls.VersionTLS12
		}
	})
}

// oddConnections are old suites, and ends in the middle of a handshake.
func oddConnections() map[string]server {
	return map[string]server{
		"rsakex":       withRSA(tls.TLS_RSA_WITH_AES_128_CBC_SHA),
		"tripledes":    withRSA(tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA),
		"rc4":          withRSA(tls.TLS_RSA_WITH_RC4_128_SHA),
		"chacha":       withRSA(tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
		"p384only":     webTLS(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP384} }, ok()), // asks for another hello
		"mlkemonly":    webTLS(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768} }, ok()),
		"unknownsni":   sends([]byte{21, 3, 1, 0, 2, 2, 112}),
		"sshport":      sends([]byte("SSH-2.0-OpenSSH_9.9\r\n")),
		"longrecord":   sends([]byte{22, 3, 3, 0xff, 0xff}),
		"halfhello":    sends([]byte{22, 3, 3, 0, 80, 2, 0, 0, 76}),
		"nocerts":      sends(helloTLS12(), []byte{22, 3, 3, 0, 7, 11, 0, 0, 3, 0, 0, 0}),
		"floodcerts":   floods(),
		"hangs12":      cutsAfterLeaf(swallow),
		"resets12":     cutsAfterLeaf(resetNow),
		"closes12":     cutsAfterLeaf(func(conn net.Conn) {}),
		"dripstls":     dripsTLS(),
		"hangupatonce": raw(func(_ *authority, _ string, conn net.Conn) {}),
	}
}
