package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// moment is a point on a priced request's way at which its process is killed.
type moment string

// The moments, in order. Those at the store exist where the store is a server;
// "lost" means that the request was carried out and its answer thrown away.
const (
	atVerify      moment = "while the facilitator judges a contract's signature"
	atClaim       moment = "before the claim is written"
	atClaimLost   moment = "when the claim is written"
	atSettle      moment = "before the facilitator moves the money"
	atSettleLost  moment = "when the facilitator has moved the money"
	atSettled     moment = "before the settlement is written"
	atLookup      moment = "when the settlement is written, during the lookup"
	atSettledLost moment = "when the settlement is written"
	atRedeem      moment = "before the answer is written"
	atRedeemLost  moment = "when the answer is written"
)

// ambush kills a process when a request comes by at one moment, once. The
// request ends without an answer.
type ambush struct {
	mu     sync.Mutex
	moment moment
	kill   func()
	sprung chan struct{} // closed when the process is gone
}

func newAmbush() *ambush { return &ambush{sprung: make(chan struct{})} }

// lay sets what is to happen; kill returns when the process is gone.
func (a *ambush) lay(at moment, kill func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.moment, a.kill = at, kill
}

// spring is called at every moment. It returns only when this is not the one.
func (a *ambush) spring(at moment) {
	a.mu.Lock()
	kill := a.kill
	if kill == nil || a.moment != at {
		a.mu.Unlock()
		return
	}
	a.kill = nil
	a.mu.Unlock()
	kill()
	close(a.sprung)
	panic(http.ErrAbortHandler) // closes the connection
}

// facilitator is the lab's with the ambush before and behind it.
func (a *ambush) facilitator(tb testing.TB, l *lab) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/verify":
			a.spring(atVerify)
		case "/settle":
			a.spring(atSettle)
		}
		answer := httptest.NewRecorder()
		l.serveFacilitator(answer, r)
		if r.URL.Path == "/settle" {
			a.spring(atSettleLost)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the service may be gone
	}))
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// store is a DynamoDB server with the ambush before and behind every write of
// a payment's record.
func (a *ambush) store(tb testing.TB, db dynamotest.Server) string {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		before, after := momentsOf(r, body)
		a.spring(before)
		out, err := http.NewRequestWithContext(r.Context(), r.Method, db.URL+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		out.Header = r.Header.Clone()
		res, err := client.Do(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		a.spring(after)
		for name, values := range res.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(res.StatusCode)
		_, _ = w.Write(answer) // the service may be gone
	}))
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		client.CloseIdleConnections()
	})
	return server.URL
}

// momentsOf says which moments a request to the store is between, "" for one
// that is not a write of a payment's record.
func momentsOf(r *http.Request, body []byte) (before, after moment) {
	var put struct {
		Item map[string]struct{ S string }
	}
	if r.Header.Get("X-Amz-Target") != "DynamoDB_20120810.PutItem" || json.Unmarshal(body, &put) != nil {
		return "", ""
	}
	switch ledger.State(put.Item[dynamo.AttrState].S) {
	case ledger.Settling:
		return atClaim, atClaimLost
	case ledger.Settled:
		return atSettled, atSettledLost
	case ledger.Redeemed:
		return atRedeem, atRedeemLost
	case ledger.Uncertain, ledger.Refused, ledger.Bought:
	}
	return "", ""
}

// mortal is a service whose process can be killed.
type mortal struct {
	d *deployment
	// kill ends the process that has the request, and revive brings another
	// one where the world does not do so by itself.
	kill   func()
	revive func() *deployment
	// dead is what the client of a killed process gets: an error, or want.
	dead *want
}

// mortalRunner is the local runner over one ledger file.
func mortalRunner(t testing.TB, l *lab, a *ambush) mortal {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ledger.db")
	set := l.setup()
	set.facilitator = a.facilitator(t, l)
	p := startLocal(t, l, set, file)
	return mortal{
		d: &deployment{base: p.URL, origin: p.URL}, kill: p.Kill,
		revive: func() *deployment {
			again := startLocal(t, l, set, file)
			return &deployment{base: again.URL, origin: again.URL}
		},
	}
}

// mortalFunctions are the built functions behind the gateway, over a table of
// their own. The host starts another process for the next request.
func mortalFunctions(db dynamotest.Server) func(testing.TB, *lab, *ambush) mortal {
	return func(t testing.TB, l *lab, a *ambush) mortal {
		t.Helper()
		set := l.setup()
		set.facilitator = a.facilitator(t, l)
		config := lambdaConfig(t, set, db.Table(t), a.store(t, db))
		log := new(testbed.Output)
		config.Logs = log
		host, err := lambdahost.New(config)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(host)
		t.Cleanup(func() {
			server.Close()
			host.Close()
			l.checkLog(t, log.String())
			if t.Failed() {
				t.Logf("the functions' log:\n%s", log.String())
			}
		})
		d := &deployment{base: server.URL, origin: "https://" + gatewayDomain}
		return mortal{
			d: d, kill: func() { host.Kill("DnsFunction") }, revive: func() *deployment { return d },
			dead: &want{kind: fromGateway, status: http.StatusInternalServerError},
		}
	}
}
