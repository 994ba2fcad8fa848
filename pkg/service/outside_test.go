package service_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	lookupdns "github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

const (
	publicOrigin = "https://api.hostfacts.com"
	publicName   = "api.hostfacts.com"
	publicZone   = publicName + ". 30 A 93.184.216.34\ncom. 30 NS a.gtld-servers.net.\n"
)

// shopfront is the public origin of a deployment: a real TLS server on loopback, whose name a
// real resolver resolves.
type shopfront struct {
	zone     string
	leaf     tls.Certificate
	handler  http.Handler
	isClosed bool
}

// open starts the server, and returns an Outside that reaches it.
func (s shopfront) open(t *testing.T, ca *testbed.Authority) service.Outside {
	t.Helper()
	listener := testbed.Must(net.Listen("tcp", "127.0.0.1:0"))
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	if s.isClosed {
		testbed.Check(listener.Close())
	} else {
		go func() {
			_ = server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{s.leaf}})) // returns when the server is closed
		}()
		t.Cleanup(func() { _ = server.Close() })
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	resolver := testbed.Resolver(t, testbed.ReadZone(t, s.zone))
	return service.Outside{
		Roots: roots, Now: time.Now, UserAgent: "test",
		Connector: &guard.Dialer{
			Resolver: lookupdns.New(lookupdns.Config{Resolvers: []string{resolver}}),
			HasRoute: func(context.Context, netip.Addr) bool { return true },
			Connect: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address != "93.184.216.34:443" {
					return nil, fmt.Errorf("nothing is at %s", address)
				}
				return new(net.Dialer).DialContext(ctx, network, listener.Addr().String())
			},
		},
	}
}

// deployedHealth returns the handler of a deployment's /health.
func deployedHealth(stack, table string) http.Handler {
	p := platform()
	p.Deployment = service.Deployment(stack, table)
	return service.Health(p, service.Offering{Site: discovery.Site{Terms: testTerms()}}, nil, nil, nil, nil)
}

func validFor(d time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(d) }
}

// TestOutside checks that a deployment is recognized at its public origin, through a real
// resolver and a real handshake. Any other server at that origin must not be recognized. The
// check must stay within its limits of time and size.
func TestOutside(t *testing.T) {
	t.Parallel()
	ca, stranger := testbed.NewAuthority(t, pkix.Name{CommonName: "CA"}), testbed.NewAuthority(t, pkix.Name{CommonName: "another CA"})
	const day = 24 * time.Hour
	good := ca.Leaf(publicName, validFor(60*day))
	own := deployedHealth("shop", "ledger-1")
	answers := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	for name, c := range map[string]struct {
		at   shopfront
		says string // a part of the error; "" if the deployment is recognized
	}{
		"its own":              {shopfront{publicZone, good, own, false}, ""},
		"a lost name":          {shopfront{"com. 30 NS a.gtld-servers.net.\ncom. 30 SOA a.gtld-servers.net. n. 1 2 3 4 5\n", good, own, false}, "cannot be reached: nxdomain"},
		"a name within":        {shopfront{publicName + ". 30 A 10.0.0.1\ncom. 30 NS a.gtld-servers.net.\n", good, own, false}, "blocked_address"},
		"nobody listens":       {shopfront{publicZone, good, own, true}, "The TCP connection to the host failed"},
		"an ended certificate": {shopfront{publicZone, ca.Leaf(publicName, validFor(-time.Minute)), own, false}, "certificate has expired"},
		"another name's":       {shopfront{publicZone, ca.Leaf("parked.example.com"), own, false}, "not " + publicName},
		"another authority's":  {shopfront{publicZone, stranger.Leaf(publicName), own, false}, "certificate signed by unknown authority"},
		"two days left":        {shopfront{publicZone, ca.Leaf(publicName, validFor(2*day)), own, false}, "the certificate of " + publicOrigin + " ends at "},
		"no mapping":           {shopfront{publicZone, good, answers(http.StatusNotFound, `{"message":"Not Found"}`), false}, "its status is 404"},
		"a wrong mapping":      {shopfront{publicZone, good, answers(http.StatusForbidden, `{"message":"Forbidden"}`), false}, "its status is 403"},
		"a parked page":        {shopfront{publicZone, good, answers(http.StatusOK, "<html>This domain is for sale</html>"), false}, "it is not the body of /health"},
		"a redirect": {shopfront{publicZone, good, http.RedirectHandler("https://parked.example.com/%1b", http.StatusFound), false},
			`its status is 302 to "https://parked.example.com/`},
		"another stack":        {shopfront{publicZone, good, deployedHealth("staging", "ledger-1"), false}, "it is of another one"},
		"another ledger":       {shopfront{publicZone, good, deployedHealth("shop", "ledger-2"), false}, "it is of another one"},
		"another service":      {shopfront{publicZone, good, answers(http.StatusOK, `{"status":"ok","service":"another"}`), false}, "it is not the body of /health"},
		"a body without end":   {shopfront{publicZone, good, answers(http.StatusOK, strings.Repeat(" ", 1<<20)), false}, "it has more than 4096 bytes"},
		"a head without end":   {shopfront{publicZone, good, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }), false}, "cannot be reached"},
		"another stack's text": {shopfront{publicZone, good, answers(http.StatusOK, `{"status":"ok","service":"Hostfacts","deployment":"\u001b[31m"}`), false}, `deployment "\x1b[31m"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ends, err := c.at.open(t, ca).Check(ctx, publicOrigin, service.Deployment("shop", "ledger-1"))
			if c.says == "" && (err != nil || time.Until(ends) < 59*day) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("ends %v, %v; want %q", ends, err, c.says)
			}
			if err != nil && (!strings.Contains(err.Error(), publicOrigin) || strings.ContainsRune(err.Error(), '\x1b')) {
				t.Errorf("it does not name the origin, or steers a terminal: %q", err)
			}
		})
	}
}

// TestOutsideSilence checks that Check ends with its context if the host accepts the
// connection and then sends nothing, whether it stops before or after the handshake.
func TestOutsideSilence(t *testing.T) {
	t.Parallel()
	ca := testbed.NewAuthority(t, pkix.Name{CommonName: "CA"})
	asked := make(chan struct{}, 1)
	at := shopfront{publicZone, ca.Leaf(publicName), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}), false}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := at.open(t, ca).Check(ctx, publicOrigin, ""); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("silent after the handshake: %v", err)
	}

	mute := at.open(t, ca)
	ctx, cancel = context.WithCancel(t.Context())
	mute.Connector.(*guard.Dialer).Connect = func(ctx context.Context, network, _ string) (net.Conn, error) { //nolint:forcetypeassert // open returns this type
		listener := testbed.Must(net.Listen("tcp", "127.0.0.1:0"))
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1)) // waits for the client's hello
			cancel()
		}()
		return new(net.Dialer).DialContext(ctx, network, listener.Addr().String())
	}
	if _, err := mute.Check(ctx, publicOrigin, ""); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("silent at the handshake: %v", err)
	}
}

// TestReconcileOrigin checks what the log line of a reconcile run says about the public
// origin: whether the deployment was recognized there, and for how many days the certificate
// is valid. The run must check the origin even if the stack sells nothing. If the check fails,
// the deployment stays ready.
func TestReconcileOrigin(t *testing.T) {
	t.Parallel()
	ca := testbed.NewAuthority(t, pkix.Name{CommonName: "CA"})
	const day = 24 * time.Hour
	met := shopfront{publicZone, ca.Leaf(publicName, validFor(10*day+time.Hour)), deployedHealth("shop", "t"), false}.open(t, ca)
	lost := shopfront{publicZone, ca.Leaf(publicName), http.NotFoundHandler(), false}.open(t, ca)
	for name, c := range map[string]struct {
		origin  string
		outside service.Outside
		paused  bool
		want    []any // the expected ReadyOrigin, CertificateDays and Ready
	}{
		"met":                 {publicOrigin, met, false, []any{1.0, 10.0, 1.0}},
		"met, while it stops": {publicOrigin, met, true, []any{1.0, 10.0, 1.0}},
		"lost":                {publicOrigin, lost, false, []any{0.0, nil, 1.0}},
		"none is known":       {"", lost, false, []any{nil, nil, 1.0}},
	} {
		var log bytes.Buffer
		p, memory := platform(), new(ledgertest.Memory)
		p.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelError + 1}))
		p.Stack, p.Deployment, p.Paused = "shop", service.Deployment("shop", "t"), c.paused
		err := service.Reconcile(p, service.Scheduled{
			Reconciler: service.Reconciler(reconcile.Reconciler{
				Ledger: ledger.New(memory, p.Now, rand.Text), Index: memory, Terms: testTerms(), Now: p.Now, Log: p.Log,
			}, nil),
			Probes: []service.Probe{{Name: service.ProbeLedger, Check: func(context.Context) error { return nil }}},
			Origin: func(context.Context) string { return c.origin }, Outside: c.outside,
		})(t.Context())
		var line map[string]any
		testbed.Check(err)
		testbed.Check(json.Unmarshal(log.Bytes(), &line))
		checkEqual(t, name, fmt.Sprint(line["ReadyOrigin"], line["CertificateDays"], line["Ready"]), fmt.Sprint(c.want...))
	}
}
