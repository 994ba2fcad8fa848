package service

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// ProbeOrigin is the name of the probe that checks the public origin. Only the scheduled
// function runs this probe.
const ProbeOrigin = "origin"

// MetricCertificateDays is the number of days until the certificate of the public origin ends.
// It is recorded only if the origin is recognized as this deployment.
const MetricCertificateDays = "CertificateDays"

const (
	// outsideTimeout is the time limit for checking the public origin. It is much longer than
	// /health needs in a new process, and shorter than the time limit of API Gateway.
	outsideTimeout = 15 * time.Second
	// These are the largest numbers of bytes that are read of the head and of the body of the
	// response. The response of /health is much shorter.
	maxOutsideHead = 16 << 10
	maxOutsideBody = 4 << 10
	// minCertificateLife is the shortest time for which the certificate of the origin must still
	// be valid. A certificate that ends sooner should already have been renewed, so its
	// automatic renewal has failed.
	minCertificateLife = 3 * 24 * time.Hour
)

// Outside checks a public origin from the outside: through public resolvers, over the public
// network, and with its certificate verified. So it detects a lost domain, certificate or
// domain mapping, which the service cannot notice from the inside.
type Outside struct {
	// Connector connects to public hosts only.
	Connector guard.Connector
	// Roots are the trusted certificate authorities; nil means the roots of this machine.
	Roots     *x509.CertPool
	Now       func() time.Time
	UserAgent string
}

// Deployment returns the name of a deployment in /health. It is a digest of the name of the
// stack and the name of the ledger's table; no other deployment has the same two names. It is
// empty if the stack has no name.
func Deployment(stack, table string) string {
	if stack == "" {
		return ""
	}
	const bytes = 8
	sum := sha256.Sum256([]byte(stack + "\n" + table))
	return hex.EncodeToString(sum[:bytes])
}

// health is the body of /health.
type health struct {
	Status     string `json:"status"`
	Service    string `json:"service"`
	Deployment string `json:"deployment,omitempty"`
}

// Check requests /health at an https origin, and returns the time when the certificate of the
// origin ends. Its error tells the operator why the origin was not recognized as this
// deployment, or that the certificate ends soon.
func (o Outside) Check(ctx context.Context, origin, deployment string) (ends time.Time, err error) {
	u, err := url.Parse(origin + catalog.PathHealth)
	if err != nil || u.Scheme != "https" {
		return ends, fmt.Errorf("%s is not an https origin", untrusted.Quote(origin, untrusted.Max))
	}
	u.RawQuery = "at=" + rand.Text() // avoids a cached answer
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return ends, fmt.Errorf("%s: %w", origin, err)
	}
	request.Header.Set("User-Agent", o.UserAgent)
	request.Header.Set("Accept", "application/json")
	transport := &http.Transport{
		DialTLSContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return o.connect(ctx, u) },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxOutsideHead,
	}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(request) // RoundTrip does not follow redirects
	if err != nil {
		return ends, fmt.Errorf("%s cannot be reached: %w", origin, err)
	}
	defer res.Body.Close()
	if err := checkHealth(res, deployment); err != nil {
		return ends, fmt.Errorf("%s answers, and not as this deployment does: %w", origin, err)
	}
	if res.TLS == nil || len(res.TLS.PeerCertificates) == 0 {
		return ends, fmt.Errorf("%s has shown no certificate", origin)
	}
	ends = res.TLS.PeerCertificates[0].NotAfter
	if ends.Sub(o.Now()) < minCertificateLife {
		return ends, fmt.Errorf("the certificate of %s ends at %s", origin, ends.UTC().Format(time.RFC3339))
	}
	return ends, nil
}

// connect connects to the host of a URL and verifies its certificate.
func (o Outside) connect(ctx context.Context, u *url.URL) (net.Conn, error) {
	name, err := guard.Domain(u.Hostname(), guard.Hostname)
	if err != nil {
		return nil, err
	}
	port, err := portOf(u)
	if err != nil {
		return nil, err
	}
	target, err := o.Connector.Resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	raw, _, err := o.Connector.Dial(ctx, target, port)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{
		ServerName: name,
		RootCAs:    o.Roots,
		Time:       o.Now,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the error of the handshake is more useful
		return nil, err
	}
	return conn, nil
}

// portOf returns the port of an https URL.
func portOf(u *url.URL) (uint16, error) {
	const https = 443
	if u.Port() == "" {
		return https, nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port: %w", err)
	}
	return uint16(port), nil
}

// checkHealth returns an error unless the response is the /health of the given deployment.
func checkHealth(res *http.Response, deployment string) error {
	if res.StatusCode != http.StatusOK {
		where := ""
		if to := res.Header.Get("Location"); to != "" {
			where = " to " + untrusted.Quote(to, untrusted.Max)
		}
		return fmt.Errorf("its status is %d%s", res.StatusCode, where)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutsideBody+1))
	if err != nil {
		return err
	}
	if len(body) > maxOutsideBody {
		return fmt.Errorf("it has more than %d bytes", maxOutsideBody)
	}
	var answer health
	err = json.Unmarshal(body, &answer)
	if err != nil || answer.Service != catalog.Service || answer.Status != statusOK {
		return errors.New("it is not the body of /health")
	}
	if answer.Deployment != deployment {
		return fmt.Errorf("it is of another one, which says deployment %s and not %s",
			untrusted.Quote(answer.Deployment, untrusted.Max), deployment)
	}
	return nil
}
