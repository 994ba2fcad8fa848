package ssl

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestLookup inspects an ordinary server. It checks the hello that the server receives, and
// compares the JSON of the result with the form of spec §2.2 byte by byte. The connection that
// Inspect returns must carry data.
func TestLookup(t *testing.T) {
	t.Parallel()
	der, body := certificateWith(nil), strings.Repeat("x", 1<<20)
	sum := sha256.Sum256(der)
	hellos := make(chan *tls.ClientHelloInfo, 1)
	got, conn, err := inspectPeer(t, startPeer(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{
			Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: ecKey()}},
			GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { hellos <- h; return nil, nil },
		})
		s.Read(make([]byte, 100))
		io.WriteString(s, body)
		s.Close()
	}))
	want := `{"domain":"www.example.com","port":443,"sni":"www.example.com","peer_ip":"93.184.216.34",` +
		`"tls_version":"tlsv1.3","cipher":"tls_aes_128_gcm_sha256","subject":"CN=www.example.com","issuer":"O=Example CA",` +
		`"serial":"0102","not_before":"2026-01-01T00:00:00Z","not_after":"2027-01-01T00:00:00Z",` +
		`"expired":false,"not_yet_valid":false,"hostname_match":true,"sans":["www.example.com"],` +
		`"fingerprint_sha256":"` + hex.EncodeToString(sum[:]) + `","signature_algorithm":"ecdsa-with-SHA256"}`
	if d := cmp.Diff(want, string(testbed.Must(json.Marshal(got)))); d != "" || err != nil {
		t.Fatal(err, d)
	}
	curves := []tls.CurveID{tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024, tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
	versions := []uint16{tls.VersionTLS13, tls.VersionTLS12, tls.VersionTLS11, tls.VersionTLS10}
	if h := <-hellos; h.ServerName != testDomain || !slices.Equal(h.SupportedProtos, []string{"http/1.1"}) || !slices.Equal(h.SupportedCurves, curves) ||
		!slices.Equal(h.SupportedVersions, versions) || slices.Contains(h.Extensions, 35) { // extension 35 is session_ticket, which the hello must not have
		t.Errorf("%+v", h)
	}
	io.WriteString(conn, "HEAD / HTTP/1.1\r\n\r\n")
	if got, err := io.ReadAll(conn); err != nil || string(got) != body {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestLarge first checks a certificate whose size is just below the limit of crypto/tls, and
// which has more names than a result may have. Then it checks chains that exceed the limit of
// crypto/tls. All must give a result.
func TestLarge(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]string{"host-" + strings.Repeat("a", 20) + ".example.net"}, 5999)
	serial := append(unhex("00ab"), make([]byte, 29)...)
	der := certificateWith(func(p *certParts) { // the name that matches the host comes last, so the result does not list it
		p.tail, p.serial, p.subject = extensionsFor(append(many, testDomain)...), tlv(2, serial), name()
	})
	got, err := newClient(startPeer(t, handshakeServer([][]byte{der}, ecKey(), nil)).Dialer()).Lookup(testbed.Soon(t), testQuery())
	if err != nil || len(got.SANs) != 5000 || !got.HostnameMatch || got.Serial != "ab"+strings.Repeat("00", 29) || got.Subject != "" {
		t.Errorf("%v, %d names, match %v, serial %s, subject %q", err, len(got.SANs), got.HostnameMatch, got.Serial, got.Subject)
	}
	if n := len(namesText([]string{strings.Repeat("a", maxNamesText), "b"})); n != 1 {
		t.Errorf("%d names of %d bytes", n, maxNamesText)
	}
	// These chains exceed the limit of crypto/tls. A small leaf fits into the first record of
	// the Certificate message. A large leaf does not, so it is read from the answer to the
	// widest hello.
	for what, leaf := range map[string][]byte{"large": der, "small": certificateWith(nil)} {
		chain := [][]byte{leaf, make([]byte, 256<<10)}
		got, err := newClient(startPeer(t, handshakeServer(chain, ecKey(), nil)).Dialer()).Lookup(testbed.Soon(t), testQuery())
		if err != nil || !got.HostnameMatch {
			t.Errorf("a %s leaf above the limit: %+v, %v", what, got, err)
		}
	}
}

// TestRefusedByTheStandardLibrary checks chains that crypto/x509 cannot parse, or for which
// crypto/tls ends the handshake. Their leaves must give a result all the same, without a
// connection and after a single attempt to connect.
func TestRefusedByTheStandardLibrary(t *testing.T) {
	n := append([]byte{0, 0xff}, bytes.Repeat([]byte{0xff}, 9216/8-1)...)
	huge := tlv(0x03, []byte{0}, tlv(0x30, tlv(0x02, n), unhex("0203010001")))
	chains := map[string][][]byte{
		"trailing data": {append(certificateWith(nil), 1, 2, 3)},
		"broken chain":  {certificateWith(nil), {1, 2, 3}},
	}
	for name, change := range map[string]func(*certParts){
		"duplicate extension": func(p *certParts) { p.tail = extensions(san(dnsName(testDomain)), san(dnsName("b.example"))) },
		"UTF-8 in a dNSName":  func(p *certParts) { p.tail = extensionsFor("bücher.example") },
		"bad IP SAN":          func(p *certParts) { p.tail = extensions(san(dnsName(testDomain), tlv(0x87, []byte{1, 2, 3}))) },
		"broken UTF-8":        func(p *certParts) { p.subject = name(rdn(attr("2.5.4.3", utf8s("a\xff")))) },
		"fraction of seconds": func(p *certParts) { p.validity = validity(generalized("20260101000000.5Z"), utc("270101000000Z")) },
		"inner is not outer":  func(p *certParts) { p.outerAlgorithm = tlv(0x30, oid("1.2.840.10045.4.3.4")) },
		"version 4":           func(p *certParts) { p.version = unhex("a003020103") },
		"padded serial":       func(p *certParts) { p.serial = unhex("020300007f") },
		"unknown key":         func(p *certParts) { p.spki = tlv(0x30, tlv(0x30, oid("1.2.3.4")), unhex("030100")) },
		"RSA of 9216 bits":    func(p *certParts) { p.spki = tlv(0x30, tlv(0x30, oid("1.2.840.113549.1.1.1"), unhex("0500")), huge) },
	} {
		chains[name] = [][]byte{certificateWith(change)}
	}
	versions := map[string]func(*tls.Config){
		"tlsv1.2": limitServer(tls.VersionTLS12), "tlsv1.3": nil,
		"tlsv1.3 retry": func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} }, // the server sends a HelloRetryRequest first
	}
	testbed.Each(t, chains, func(t *testing.T, chain [][]byte) {
		sum := sha256.Sum256(bytes.TrimSuffix(chain[0], []byte{1, 2, 3}))
		for version, change := range versions {
			w := startPeer(t, handshakeServer(chain, ecKey(), change))
			r, conn, err := inspectPeer(t, w)
			if err != nil || r.FingerprintSHA256 != hex.EncodeToString(sum[:]) || textOrNull(r.TLSVersion) != version[:7] || textOrNull(r.Cipher) == "null" ||
				conn != nil || len(w.Dials()) != 1 {
				t.Errorf("%s: %+v, %s %s, connection %v after %q, %v", version, r, textOrNull(r.TLSVersion), textOrNull(r.Cipher), conn, w.Dials(), err)
			}
		}
	})
}

// haltingConn is a server's connection that stops the server in the middle of a handshake:
// after the number of bytes in bytesLeft, or, if bytesLeft is 0, after the server's first
// flight. To stop the server, haltingConn calls the function in onHalt, closes the connection
// and returns an error.
type haltingConn struct {
	net.Conn
	bytesLeft  int
	hasWritten bool
	onHalt     func(net.Conn)
}

func (c *haltingConn) halt() error {
	c.onHalt(c.Conn)
	c.Close()
	return io.ErrClosedPipe
}

func (c *haltingConn) Write(p []byte) (int, error) {
	c.hasWritten = true
	if c.bytesLeft == 0 {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:min(len(p), c.bytesLeft)])
	if c.bytesLeft -= n; c.bytesLeft == 0 && err == nil {
		err = c.halt()
	}
	return n, err
}

func (c *haltingConn) Read(p []byte) (int, error) {
	if !c.hasWritten {
		return c.Conn.Read(p)
	}
	// The server has written its first flight and now reads the answer. Read the client's
	// second flight before the connection is closed, because closing a connection with unread
	// bytes would send a reset.
	c.Conn.Read(make([]byte, 1<<16))
	return 0, c.halt()
}

// haltingServer returns a server that stops its handshake in the first flight, after n bytes,
// and then calls end. If n is 0, it stops after the first flight.
func haltingServer(chain [][]byte, version uint16, n int, end func(net.Conn)) func(net.Conn) {
	serve := handshakeServer(chain, ecKey(), limitServer(version))
	return func(c net.Conn) { serve(&haltingConn{Conn: c, bytesLeft: n, onHalt: end}) }
}

// scriptedServer returns a server that reads the hello, writes the given bytes, and waits
// until the client closes the connection.
func scriptedServer(out ...[]byte) func(net.Conn) {
	return func(c net.Conn) {
		c.Read(make([]byte, 1<<16))
		c.Write(bytes.Join(out, nil))
		readUntilClose(c)
	}
}

// endlessServer returns a server that begins a message of the largest possible size and then
// writes the given record again and again. There is always more to read, so only a limit of
// bytes can make the client stop.
func endlessServer(record ...[]byte) func(net.Conn) {
	return func(c net.Conn) {
		_, err := c.Write(append(helloTLS12(), 22, 3, 3, 0, 10, 11, 3, 0xff, 0xff, 3, 0xff, 0xfc, 3, 0xff, 0xf9))
		for err == nil {
			_, err = c.Write(bytes.Join(record, nil))
		}
	}
}

// hangUpServer returns a server that reads the hello, sends the text in out and then closes the
// connection.
func hangUpServer(out string) func(net.Conn) {
	return func(c net.Conn) {
		c.Read(make([]byte, 1<<16))
		io.WriteString(c, out)
	}
}

func readUntilClose(c net.Conn) { io.Copy(io.Discard, c) }

func resetOnClose(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }

// tls13Intolerant returns a server that refuses a TLS 1.3 hello by sending the bytes in answer
// and closing the connection. It accepts older hellos.
func tls13Intolerant(answer []byte) func(net.Conn) {
	return pickyServer(func(h *tls.ClientHelloInfo) bool {
		if h.SupportedVersions[0] == tls.VersionTLS13 {
			h.Conn.Write(answer)
			h.Conn.Close()
		}
		return h.SupportedVersions[0] != tls.VersionTLS13
	})
}

// acceptCurve returns a function that lets a server accept only one kind of key exchange. The
// function is an argument of handshakeServer.
func acceptCurve(id tls.CurveID) func(*tls.Config) {
	return func(cfg *tls.Config) { cfg.CurvePreferences = []tls.CurveID{id} }
}

// pickyServer returns a server that accepts a hello only if ok returns true for the hello and
// the hello names the host testDomain.
func pickyServer(ok func(*tls.ClientHelloInfo) bool) func(net.Conn) {
	return handshakeServer([][]byte{certificateWith(nil)}, ecKey(), func(cfg *tls.Config) {
		cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if !ok(h) || h.ServerName != testDomain {
				return nil, io.EOF
			}
			return nil, nil
		}
	})
}

// TestPeers checks the outcome for each way in which a peer can behave during the handshake,
// and the number of connections that it takes. The expected text is the error, or the version
// and the suite, followed by "connected" if there is a connection.
func TestPeers(t *testing.T) {
	der, other := [][]byte{certificateWith(nil)}, curveKey(elliptic.P256())
	ordinaryServer := func(key crypto.Signer, version, suite uint16) func(net.Conn) {
		return handshakeServer([][]byte{ordinaryParts(key).der(key)}, key, limitServer(version, suite))
	}
	clientCertServer := func(highest uint16) func(net.Conn) {
		return handshakeServer(der, ecKey(), func(c *tls.Config) { c.MaxVersion, c.ClientAuth = highest, tls.RequireAnyClientCert })
	}
	haltAfterFlight := func(end func(net.Conn)) func(net.Conn) { return haltingServer(der, tls.VersionTLS12, 0, end) }
	const (
		tls12 = "tlsv1.2 tls_ecdhe_ecdsa_with_aes_128_gcm_sha256"
		tls13 = "tlsv1.3 tls_aes_128_gcm_sha256"
		open  = " connected"

		noTLS     = "handshake_failed: The host does not speak TLS on port 443."
		narrow    = " What was offered to the host may have been too narrow."
		failed    = "handshake_failed: The TLS handshake failed before the host sent a certificate."
		unread    = "handshake_failed: The host sent a certificate that cannot be read."
		alert     = "handshake_failed: The host refused the TLS handshake with alert 40 before it sent a certificate." + narrow
		nameAlert = "handshake_failed: The host refused the TLS handshake with alert 112 before it sent a certificate."
	)
	type row struct {
		serve func(net.Conn)
		want  string
		dials int
	}
	testbed.Each(t, map[string]row{
		// All versions and all kinds of cipher suites that crypto/tls supports.
		"TLS 1.0": {ordinaryServer(rsaKey(), tls.VersionTLS10, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA), "tlsv1 tls_ecdhe_rsa_with_aes_128_cbc_sha" + open, 1},
		"3DES":    {ordinaryServer(rsaKey(), tls.VersionTLS10, tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA), "tlsv1 tls_rsa_with_3des_ede_cbc_sha" + open, 1},
		"TLS 1.1": {ordinaryServer(rsaKey(), tls.VersionTLS11, tls.TLS_RSA_WITH_AES_256_CBC_SHA), "tlsv1.1 tls_rsa_with_aes_256_cbc_sha" + open, 1},
		"RC4":     {ordinaryServer(rsaKey(), tls.VersionTLS12, tls.TLS_RSA_WITH_RC4_128_SHA), "tlsv1.2 tls_rsa_with_rc4_128_sha" + open, 1},
		"CBC":     {ordinaryServer(rsaKey(), tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_CBC_SHA256), "tlsv1.2 tls_rsa_with_aes_128_cbc_sha256" + open, 1},
		"ChaCha20": {ordinaryServer(ecKey(), tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
			"tlsv1.2 tls_ecdhe_ecdsa_with_chacha20_poly1305_sha256" + open, 1},
		// crypto/tls completes this handshake only because go.mod sets x509negativeserial=1.
		// Otherwise crypto/x509 would refuse a negative serial number.
		"negative serial": {handshakeServer([][]byte{certificateWith(func(p *certParts) { p.serial = unhex("0202ff00") })}, ecKey(), nil), tls13 + open, 1},
		// These servers refuse TLS 1.3. The client tries again with the offer origin.Plain,
		// and then with origin.Old.
		"intolerant, alert": {tls13Intolerant([]byte{21, 3, 3, 0, 2, 2, 70}), tls12 + open, 3},
		"intolerant, close": {tls13Intolerant(nil), tls12 + open, 3},
		// Each of these servers requires or refuses something that browsers, curl and Go
		// offer. If the server does not speak HTTP/1.1, there must be a result but no
		// connection.
		"X25519MLKEM768 alone":     {handshakeServer(der, ecKey(), acceptCurve(tls.X25519MLKEM768)), tls13 + open, 1},
		"SecP256r1MLKEM768 alone":  {handshakeServer(der, ecKey(), acceptCurve(tls.SecP256r1MLKEM768)), tls13 + open, 1},
		"SecP384r1MLKEM1024 alone": {handshakeServer(der, ecKey(), acceptCurve(tls.SecP384r1MLKEM1024)), tls13 + open, 1},
		"wants ALPN":               {pickyServer(func(h *tls.ClientHelloInfo) bool { return len(h.SupportedProtos) > 0 }), tls13 + open, 1},
		"wants HTTP/2":             {pickyServer(func(h *tls.ClientHelloInfo) bool { return slices.Contains(h.SupportedProtos, "h2") }), tls13, 4},
		"refuses ALPN":             {pickyServer(func(h *tls.ClientHelloInfo) bool { return h.SupportedProtos == nil }), tls13 + open, 2},
		"refuses hybrid groups": {pickyServer(func(h *tls.ClientHelloInfo) bool { return !slices.Contains(h.SupportedCurves, tls.X25519MLKEM768) }),
			tls13 + open, 2},
		// These servers accept only the widest hello. They parse the hello with crypto/tls, so
		// these cases also check that the hello is well-formed.
		"wants GOST":            {pickyServer(func(h *tls.ClientHelloInfo) bool { return slices.Contains(h.CipherSuites, 0xc100) }), tls12, 5},
		"wants Ed448":           {pickyServer(func(h *tls.ClientHelloInfo) bool { return slices.Contains(h.SignatureSchemes, 0x0808) }), tls12, 5},
		"wants brainpoolP256r1": {pickyServer(func(h *tls.ClientHelloInfo) bool { return slices.Contains(h.SupportedCurves, 26) }), tls12, 5},
		"certificate left out": {func(c net.Conn) { // in answer to the widest hello, the server sends no certificate and then waits for the client's key
			hello := make([]byte, 1<<14)
			n, _ := c.Read(hello)
			out := []byte{21, 3, 1, 0, 2, 2, 40}
			if session := int(hello[43]); int(hello[44+session])<<8+int(hello[45+session]) > 200 { // the list of suites has more than 200 bytes, so this is the widest hello
				out = append(helloTLS12(), 22, 3, 3, 0, 4, 14, 0, 0, 0)
			}
			c.Write(out[:min(n, len(out))])
			readUntilClose(c)
		}, alert, 5},

		// The server sends a certificate, and then the handshake fails.
		"client certificate, TLS 1.2": {clientCertServer(tls.VersionTLS12), tls12, 1},
		"client certificate, TLS 1.3": {clientCertServer(tls.VersionTLS13), tls13 + open, 1}, // in TLS 1.3, the client completes the handshake before the server sees that the client has no certificate
		"key of another, TLS 1.2":     {handshakeServer(der, other, limitServer(tls.VersionTLS12)), tls12, 1},
		"key of another, TLS 1.3":     {handshakeServer(der, other, nil), tls13, 1},
		"late alert":                  {haltAfterFlight(func(c net.Conn) { c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) }), tls12, 1},
		"late close":                  {haltAfterFlight(func(net.Conn) {}), tls12, 1},
		"late reset":                  {haltAfterFlight(resetOnClose), tls12, 1},
		"late garbage":                {haltAfterFlight(func(c net.Conn) { c.Write(bytes.Repeat([]byte{0xff}, 1<<16)) }), tls12, 1},

		// The server sends no certificate.
		"HTTP":                 {hangUpServer("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), noTLS, 1},
		"close":                {hangUpServer(""), failed + narrow, 5},
		"reset":                {func(c net.Conn) { c.Read(make([]byte, 1)); resetOnClose(c) }, failed + narrow, 5},
		"alert":                {scriptedServer([]byte{21, 3, 1, 0, 2, 2, 40}), alert, 5},
		"alert for the name":   {scriptedServer([]byte{21, 3, 1, 0, 2, 2, 112}), nameAlert, 1},
		"record too long":      {scriptedServer([]byte{22, 3, 3, 0xff, 0xff}), noTLS, 1},
		"empty records":        {scriptedServer(bytes.Repeat([]byte{22, 3, 3, 0, 0}, 1000), []byte{21, 3, 3, 0, 2, 2, 40}), failed + narrow, 5},
		"no TLS certificate":   {handshakeServer([][]byte{{0x30, 3, 1, 1, 0xff}}, ecKey(), nil), unread, 1},
		"message too large":    {hangUpServer(string([]byte{22, 3, 3, 0, 4, 2, 0xff, 0xff, 0xff})), failed + narrow, 5},
		"no certificate":       {scriptedServer(helloTLS12(), []byte{22, 3, 3, 0, 4, 14, 0, 0, 0}), failed, 1},
		"nothing in common":    {handshakeServer(der, ecKey(), limitServer(tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256)), alert, 5},
		"endless message":      {endlessServer([]byte{22, 3, 3, 0x40, 0}, make([]byte, 0x4000)), unread, 1},
		"endless headers":      {endlessServer(bytes.Repeat([]byte{22, 3, 3, 0, 1, 0}, 1000)), unread, 1},
		"longer than its list": {scriptedServer(helloTLS12(), []byte{22, 3, 3, 0, 12, 11, 0, 0, 8, 0, 0, 4, 0, 0, 2, 0xde, 0xad}), failed, 1},
		"empty certificate":    {scriptedServer(helloTLS12(), []byte{22, 3, 3, 0, 10, 11, 0, 0, 6, 0, 0, 3, 0, 0, 0}), failed, 1},
		"empty list, TLS 1.2":  {scriptedServer(helloTLS12(), []byte{22, 3, 3, 0, 7, 11, 0, 0, 3, 0, 0, 0}), failed, 1},
	}, func(t *testing.T, c row) {
		w := startPeer(t, c.serve)
		r, conn, err := inspectPeer(t, w)
		got := textOrNull(r.TLSVersion) + " " + textOrNull(r.Cipher)
		switch f := fault.From(err); {
		case err != nil:
			got = string(f.Code) + ": " + f.Public()
		case conn != nil:
			got += open
		}
		if got != c.want || len(w.Dials()) != c.dials || err == nil && r.Subject != "CN="+testDomain {
			t.Errorf("%s of %q after %q, want %s: %v", got, r.Subject, w.Dials(), c.want, err)
		}
	})
}
