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

// ProbeOrigin is the probe of the public origin, which only the scheduled function has.
const ProbeOrigin = "origin"

// MetricCertificateDays is how many days the certificate of the public origin is still good
// for; there is none where the origin did not answer as this deployment.
const MetricCertificateDays = "CertificateDays"

const (
	// outsideTimeout is far above what a new process of /health needs, and below what API
	// Gateway gives it.
	outsideTimeout = 15 * time.Second
	// The most that is read of the answer, in bytes, far above what ours needs.
	maxOutsideHead = 16 << 10
	maxOutsideBody = 4 << 10
	// leastCertificate is for how long the certificate of the origin must be good: what ends
	// before that is not renewed by itself any more.
	leastCertificate = 3 * 24 * time.Hour
)

// Outside checks a public origin as a stranger meets it: its name is resolved by public
// resolvers, and it is reached over the public network, with its certificate verified. So a
// domain, a certificate or a mapping that is lost is noticed, although every part of the
// service works without it.
type Outside struct {
	// Connector reaches public hosts and no others.
	Connector guard.Connector
	// Roots may have issued the certificate; nil means those of this machine.
	Roots     *x509.CertPool
	Now       func() time.Time
	UserAgent string
}

// Deployment returns the name of a deployment in /health: a digest of the stack's name and of
// its ledger's table, which together no other deployment has. It is empty for a stack without
// a name.
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

// Check requests /health of an https origin, and returns when its certificate ends. Its error
// says why the deployment was not met there, in words for its operator.
func (o Outside) Check(ctx context.Context, origin, deployment string) (ends time.Time, err error) {
	u, err := url.Parse(origin + catalog.PathHealth)
	if err != nil || u.Scheme != "https" {
		return ends, fmt.Errorf("%s is not an https origin", untrusted.Quote(origin, untrusted.Max))
	}
	u.RawQuery = "at=" + rand.Text() // no cache has an answer to it
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
	res, err := transport.RoundTrip(request) // and so without following a redirect
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
	if ends.Sub(o.Now()) < leastCertificate {
		return ends, fmt.Errorf("the certificate of %s ends at %s", origin, ends.UTC().Format(time.RFC3339))
	}
	return ends, nil
}

// connect connects to the host of a URL, whose certificate it verifies.
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
		_ = raw.Close() // the handshake has said what is wrong
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

// checkHealth says why an answer is not that of a deployment; nil when it is.
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
