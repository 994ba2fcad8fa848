// Package ssl reads the certificate that a public host presents on port 443. It reports the
// names, the issuer and the validity of the certificate, and the protocol and the cipher of
// the connection. (The service offers this lookup as "SSL Inspector": spec §2.2, §4.3.)
//
// A result describes the leaf certificate, which is the first that the host sends. The package
// checks only that the leaf can be parsed. So expired, self-signed and wrong certificates give
// a result. A leaf also gives a result if the handshake fails after the leaf was received:
//
//	handshake completed                        the result, with the connection
//	failed, hung or timed out after the leaf   the result
//	peer answered, but sent no leaf            other hellos are tried if they can help:
//	                                           without post-quantum key exchange and ALPN,
//	                                           with at most TLS 1.2, with HTTP/2, and with
//	                                           everything that a hello can offer; if none
//	                                           succeeds, handshake_failed
//	no TLS, or no certificate that parses      handshake_failed
//	silence, or bytes too slow                 ssl_timeout, marked as the host's silence
//
// crypto/x509 refuses many certificates that are in use, and then crypto/tls fails the
// handshake. So the package records the bytes from the server and, if necessary, takes the
// leaf from the recording. Up to TLS 1.2, the leaf in the recording is in plain text. In TLS
// 1.3, the package decrypts the leaf with the secret of the handshake. There is one limit: if
// a Certificate message of TLS 1.3 is longer than 256 KiB, the package searches only the first
// record of the message for the leaf. The leaf can then have at most 16 KiB. The hello that
// offers everything is built without crypto/tls. A TLS 1.2 server answers it with its leaf,
// but the handshake cannot be completed.
package ssl

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Config configures a Client.
type Config struct {
	// Connector resolves hosts and connects to them.
	Connector guard.Connector
	// Now is the clock that decides whether a certificate is expired or not yet valid. It is
	// time.Now by default.
	Now func() time.Time
}

// Client inspects hosts. It is safe for concurrent use.
type Client struct{ cfg Config }

// New returns a Client that uses cfg.
func New(cfg Config) *Client {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Client{cfg: cfg}
}

// Lookup answers a query before ctx ends. Its errors have the codes blocked_address, nxdomain,
// connect_failed, handshake_failed and ssl_timeout. Any other error is a bug. Lookup leaves no
// connection open.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	target, err := c.cfg.Connector.Resolve(ctx, q.Domain)
	if err != nil {
		return Result{}, origin.Fault(ctx, err, lookup.SSLTimeout)
	}
	r, conn, err := c.Inspect(ctx, q, target)
	if conn != nil {
		conn.Close()
	}
	return r, err
}

// Inspect is like Lookup, for a target that has already been resolved. If the handshake is
// completed and the server speaks HTTP/1.1, Inspect also returns the connection, which the
// caller must close. The connection is nil if there is an error, if the handshake failed after
// the certificate was received, and if the server accepted only a hello with HTTP/2 or the
// hello that offers everything.
func (c *Client) Inspect(ctx context.Context, q Query, target guard.Target) (Result, *tls.Conn, error) {
	var f flight
	var tlsConn *tls.Conn
	var hellos []origin.Hello
	for _, o := range append(origin.Offers(), origin.Browser) {
		hellos = append(hellos, func(conn net.Conn) (canRetry bool, err error) {
			f, tlsConn, canRetry, err = handshake(ctx, conn, q.Domain, o)
			return canRetry, err
		})
	}
	hellos = append(hellos, func(conn net.Conn) (canRetry bool, err error) {
		f, err = sendWidestHello(ctx, conn, q.Domain)
		return false, err
	})
	peer, err := origin.Greet(ctx, c.cfg.Connector, target, hellos...)
	if err != nil {
		return Result{}, nil, origin.Fault(ctx, err, lookup.SSLTimeout)
	}
	r, err := f.result(q, peer, c.cfg.Now())
	if err != nil {
		if tlsConn != nil {
			tlsConn.Close()
		}
		return Result{}, nil, lookup.Faultf(lookup.HandshakeFailed, err, "The host sent a certificate that cannot be read.")
	}
	return r, tlsConn, nil
}

// recorder is a connection that records the bytes that are read from it, in the field
// received. Its field keyLog gets the lines that crypto/tls writes to Config.KeyLogWriter. A
// recorder does not limit the number of bytes; the code that uses it has to.
type recorder struct {
	net.Conn
	received bytes.Buffer
	keyLog   strings.Builder
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.received.Write(p[:n])
	return n, err
}

// trafficSecret returns the server's handshake traffic secret of TLS 1.3. The server encrypts
// its certificate with keys derived from this secret. If crypto/tls has logged no such secret,
// the result is empty.
func (r *recorder) trafficSecret() []byte {
	_, keys, _ := strings.Cut(r.keyLog.String(), "SERVER_HANDSHAKE_TRAFFIC_SECRET ")
	line, _, _ := strings.Cut(keys, "\n")
	_, digits, _ := strings.Cut(line, " ")
	secret, _ := hex.DecodeString(digits)
	return secret
}

// alertUnrecognizedName is the number of the alert that a server sends if it does not know the
// name in the hello. After this alert, another hello with the same name cannot help.
const alertUnrecognizedName = 112

// handshake makes one TLS handshake over conn with the offer o. There are three outcomes:
//
//   - If the handshake is completed, and o is not Browser, the results are a flight with a leaf
//     and a connection for HTTP/1.1.
//   - If the handshake is completed, and o is Browser, the result is a flight with a leaf, and
//     conn is closed. The same goes for a handshake that fails after the leaf was received.
//   - Otherwise the result is an error. conn is closed, and canRetry reports whether another
//     hello may succeed.
func handshake(ctx context.Context, conn net.Conn, domain string, o origin.Offer) (f flight, tlsConn *tls.Conn, canRetry bool, err error) {
	rec := &recorder{Conn: conn}
	cfg := origin.TLSConfig(domain, o)
	cfg.KeyLogWriter = &rec.keyLog
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		f = flight{
			leaf:    cs.PeerCertificates[0].Raw,
			version: cs.Version,
			suite:   cs.CipherSuite,
		}
		return nil
	}
	client := tls.Client(rec, cfg)
	err = client.HandshakeContext(ctx)
	if err == nil && o != origin.Browser {
		return f, client, false, nil
	}
	conn.Close()
	if f.leaf == nil {
		f = readFlight(&rec.received, rec.trafficSecret())
	}
	if f.leaf != nil {
		return f, nil, false, nil
	}
	if ctx.Err() != nil {
		return f, nil, false, fmt.Errorf("%w: %w", origin.Late(ctx), err)
	}
	canRetry = f.alert != alertUnrecognizedName && (!f.hasHello || f.version == tls.VersionTLS13)
	switch {
	case f.alert >= 0:
		err = lookup.Faultf(lookup.HandshakeFailed, err, "The host refused the TLS handshake with alert %d before it sent a certificate.", f.alert)
	case !f.hasHello && errors.As(err, new(tls.RecordHeaderError)):
		canRetry = false
		err = lookup.Faultf(lookup.HandshakeFailed, err, "The host does not speak TLS on port 443.")
	default:
		err = lookup.Faultf(lookup.HandshakeFailed, err, "The TLS handshake failed before the host sent a certificate.")
	}
	return f, nil, canRetry, err
}

// Query is a normalised query. The port is always origin.Port.
type Query struct {
	Domain string // a host name in the form that guard.Domain returns
}

// Codes returns the codes of the errors that ParseQuery and Client.Lookup can return.
func Codes() []fault.Code {
	return append(guard.Codes(), lookup.InvalidPort, lookup.HandshakeFailed, lookup.SSLTimeout)
}

// ParseQuery parses the parameters domain and port of spec §4.3 and ignores all others. Its
// errors are invalid_domain and invalid_port.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.Hostname)
	if err != nil {
		return Query{}, err
	}
	ports, isSet := q["port"]
	if len(ports) > 1 {
		return Query{}, lookup.Faultf(lookup.InvalidPort, nil, "port is repeated: leave it out or pass 443 once.")
	}
	accepted := []string{strconv.Itoa(origin.Port)} // the only accepted spelling, so 0443 is refused
	if isSet && !slices.Equal(ports, accepted) {
		return Query{}, lookup.Fault(lookup.InvalidPort, nil)
	}
	return Query{Domain: domain}, nil
}

// Values returns the normalised parameters of the query. Two requests are the same if their
// values are equal.
func (q Query) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "port": {strconv.Itoa(origin.Port)}}
}

// Limits of the field sans in a result. They do not affect hostname_match, which takes all
// names of the certificate into account.
const (
	maxNames     = 5000
	maxNamesText = 256 << 10 // bytes
)

// Result is the SSL result of spec §2.2. Its texts come from the server and are untrusted, but
// they are valid UTF-8.
type Result struct {
	Domain string `json:"domain" doc:"Normalized FQDN inspected"`
	Port   int    `json:"port" doc:"TLS port; always 443"`
	SNI    string `json:"sni" doc:"Name sent in the handshake"`
	PeerIP string `json:"peer_ip" doc:"Peer IP address"`
	// TLSVersion is the version that the server chose: tlsv1, tlsv1.1, tlsv1.2 or tlsv1.3. It
	// is nil if the server chose another version.
	TLSVersion *string `json:"tls_version" doc:"Such as tlsv1.3"`
	// Cipher is the IANA name of the cipher suite that the server chose, in lower case. It is
	// nil if this package knows no name for the suite.
	Cipher *string `json:"cipher" doc:"Cipher suite, lower case"`
	// Subject and Issuer are distinguished names in the form of RFC 4514. An empty name is "".
	Subject string `json:"subject" doc:"DN of the subject"`
	Issuer  string `json:"issuer" doc:"DN of the issuer"`
	// Serial is the serial number in hex, with an even number of digits and without the zero
	// byte that DER may put first. Zero is "00". A negative number is written as "-" and its
	// absolute value.
	Serial string `json:"serial" doc:"Lowercase hex"`
	// NotBefore and NotAfter are the first and the last second of the certificate's validity.
	NotBefore     string `json:"not_before" doc:"Validity start, ISO 8601 UTC" show:"time"`
	NotAfter      string `json:"not_after" doc:"Validity end, ISO 8601 UTC" show:"end"`
	Expired       bool   `json:"expired" doc:"Whether now is after not_after" show:"wrong"`
	NotYetValid   bool   `json:"not_yet_valid" doc:"Whether now is before not_before" show:"wrong"`
	HostnameMatch bool   `json:"hostname_match" doc:"Whether the leaf is for this hostname" show:"right"`
	// SANs are the dNSName entries of the certificate: at most the first 5,000 entries, and at
	// most 256 KiB of text. The list is never nil. In an entry, bytes that are not UTF-8 are
	// replaced by U+FFFD.
	SANs              []string `json:"sans" doc:"DNS names of the subjectAltName"`
	FingerprintSHA256 string   `json:"fingerprint_sha256" doc:"SHA-256 of the DER, hex"`
	// SignatureAlgorithm is the algorithm's name in the RFC that defines the algorithm. If
	// this package knows no name, it is the OID in dotted form.
	SignatureAlgorithm string `json:"signature_algorithm" doc:"Name of the algorithm"`
}

// Verdicts returns the rules for the line that summarises a Result.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "expired = true", Says: "The certificate expired {not_after date}, {not_after distance}", Tone: lookup.Bad},
		{If: "not_yet_valid = true", Says: "The certificate is not valid before {not_before date}, {not_before distance}", Tone: lookup.Bad},
		{If: "hostname_match = false", Says: "The certificate is not for {domain}", Tone: lookup.Bad},
		{Says: "Certificate for {domain} expires {not_after date}, {not_after distance}", Tone: lookup.Good},
	}
}
