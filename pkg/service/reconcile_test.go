package service_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

const payer = "0x857b06519e91e3a54538791bdbb0e22373e36b66"

// chainView is a function that serves as an Evidence.
type chainView func(ctx context.Context, q x402.Question) x402.Finding

func (f chainView) Find(ctx context.Context, q x402.Question) x402.Finding { return f(ctx, q) }

// brokenIndex is an Index that always returns its error.
type brokenIndex struct{ error }

func (x brokenIndex) List(context.Context, string, time.Time, ledger.Place, int) ([]ledger.Place, error) {
	return nil, x.error
}

func testTerms() x402.Terms {
	return testbed.Terms(testbed.Must(x402.ParseAddress("0x209693Bc6afc0C5328bA36FaF03C514EF312287C")))
}

// scheduled holds what a test of the scheduled function needs. Its ledger has two payments in
// doubt and a refund that is due.
type scheduled struct {
	*testing.T
	parts
	Index  ledger.Index
	Ledger *ledger.Ledger
	log    bytes.Buffer
}

// testReconcile runs a test of the scheduled function in a synctest bubble.
func testReconcile(t *testing.T, test func(s *scheduled)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := new(ledgertest.Memory)
		s := &scheduled{T: t, parts: parts{
			Platform: platform(), Offering: service.Offering{Site: discovery.Site{Terms: testTerms()}},
		}, Index: memory, Ledger: ledger.New(memory, time.Now, rand.Text)}
		s.Platform.Log = slog.New(slog.NewJSONHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelError + 1}))
		for nonce := range 3 {
			h := s.claim(ledger.Submission{
				Key: ledger.Key("eip155:8453", strings.ToLower(s.Terms.Asset), payer,
					fmt.Sprintf("0x%064d", nonce+1)),
				AuthDigest: fmt.Sprint(nonce), SigDigest: fmt.Sprint(nonce), Request: "GET /a",
				Terms: testbed.Must(json.Marshal(testTerms().Requirements("5000"))), ValidBefore: time.Now().Add(5 * time.Minute),
			})
			err := h.End(t.Context(), ledger.EventUncertain, "timeout", "")
			if nonce == 2 {
				err = h.Settled(t.Context(), ledger.Receipt{Transaction: "0x1"}, false)
			}
			testbed.Check(err)
		}
		time.Sleep(25 * time.Hour) // now it is too late to make the owed lookup, so the refund is due
		test(s)
	})
}

func (s *scheduled) claim(p ledger.Submission) *ledger.Hold {
	return testbed.Must(s.Ledger.Claim(s.Context(), p, time.Now().Add(30*time.Second))).Hold
}

// run runs the scheduled function, and returns the only line that it logs. wantErr is the
// expected error.
func (s *scheduled) run(ctx context.Context, wantErr error, probes ...service.Probe) map[string]any {
	s.Helper()
	reconciler := service.Reconciler(reconcile.Reconciler{
		Ledger: s.Ledger, Index: s.Index, Evidence: s.Evidence, Terms: s.Terms, Now: s.Platform.Now, Log: s.Platform.Log,
	}, nil)
	if err := service.Reconcile(s.Platform, service.Scheduled{Reconciler: reconciler, Watched: s.Evidence != nil, Probes: probes})(ctx); !errors.Is(err, wantErr) {
		s.Errorf("%v, want %v", err, wantErr)
	}
	var m map[string]any
	if err := json.Unmarshal(s.log.Bytes(), &m); err != nil {
		s.Fatalf("the log is not one JSON line: %v:\n%s", err, &s.log)
	}
	return m
}

// TestReconcile checks that a run ends early enough to write its decision and its log line.
// The line must be written whatever the log level.
func TestReconcile(t *testing.T) {
	testReconcile(t, func(s *scheduled) {
		var until []time.Duration
		s.Evidence = chainView(func(ctx context.Context, q x402.Question) x402.Finding {
			end, _ := ctx.Deadline()
			until = append(until, time.Until(end))
			if q.Nonce[31] == 1 {
				time.Sleep(time.Second)
				return x402.Finding{Fate: x402.Paid, Transaction: "0x2"}
			}
			<-ctx.Done() // waits until the time for the search of the chain, or the time of the run, is over
			return x402.Finding{Cause: ctx.Err()}
		})
		const timeout = 15 * time.Second // 10 s of it are the margin; of the other 5 s, 3.75 s are for the chain
		ctx, cancel := context.WithTimeout(s.Context(), timeout)
		defer cancel()
		ends := time.Now().Add(3750 * time.Millisecond).Format(time.RFC3339Nano)
		s.run(ctx, nil)
		checkEqual(t, "time to ask the chain in", fmt.Sprint(until), "[3.75s 2.75s]")
		want := `{"time":"` + ends + `","level":"INFO","msg":"reconcile","listed":2,"settled_late":1,` +
			`"refused_late":0,"still_open":0,"cannot_tell":0,"undue":0,"skipped":0,"failed":0,"left":1,` +
			`"open":2,"received":0,"deposits":0,"found":0,"unasked":0,"unmatched":0,"owed":2,"owed_over_an_hour":1,"refunds_due":1,` +
			`"silent":0,"unproven":0,"swept":0,"uncounted":0,"unread":false,"unfinished":false,"evidence":true,"ms":3750,` +
			`"SettledLate":1,"RefusedLate":0,"StillOpen":0,"CannotTell":0,"Left":1,"Open":2,` +
			`"OwedUnclaimed":2,"OwedOverAnHour":1,"RefundsDue":1,"ReconcileFailed":0,"_aws":{"Timestamp":946774803750,` +
			`"CloudWatchMetrics":[{"Namespace":"Hostfacts","Dimensions":[[]],` +
			`"Metrics":[{"Name":"SettledLate","Unit":"Count"},{"Name":"RefusedLate","Unit":"Count"},` +
			`{"Name":"StillOpen","Unit":"Count"},{"Name":"CannotTell","Unit":"Count"},{"Name":"Left",` +
			`"Unit":"Count"},{"Name":"Open","Unit":"Count"},{"Name":"OwedUnclaimed","Unit":"Count"},` +
			`{"Name":"OwedOverAnHour","Unit":"Count"},{"Name":"RefundsDue","Unit":"Count"},{"Name":"ReconcileFailed","Unit":"Count"}]}]}}` + "\n"
		if diff := cmp.Diff(want, s.log.String()); diff != "" {
			t.Errorf("line (-want +got):\n%s", diff)
		}
	})
}

// TestReconcileStoresSilence checks that a run stores an error as the answer to a paid lookup
// whose target stayed silent. The request id in the stored answer must be "reconcile", because
// no client's request belongs to a run.
func TestReconcileStoresSilence(t *testing.T) {
	testReconcile(t, func(s *scheduled) {
		p := ledger.Submission{Key: ledger.Key("eip155:8453", strings.ToLower(s.Terms.Asset), payer, "0x09"), AuthDigest: "9", ValidBefore: time.Now().Add(time.Minute)}
		h := s.claim(p)
		testbed.Check(h.Settled(s.Context(), ledger.Receipt{Transaction: "0x1"}, true))
		testbed.Check(h.Release(s.Context(), ledger.Failure{Code: string(lookup.SSLTimeout), Message: "The host did not answer.", Silence: true}))
		time.Sleep(25 * time.Hour)
		checkEqual(s.T, "closed", s.run(s.Context(), nil)["silent"], any(1.0))
		r := testbed.Must(s.Ledger.Fetch(s.Context(), p.Key))
		body := string(testbed.Must(r.Answer.Plain()))
		checkEqual(s.T, "status", r.Answer.Status, 504)
		if !strings.Contains(body, `"code":"ssl_timeout","message":"The host did not answer.`) || !strings.Contains(body, `"charged":true,"retryable":false},"request_id":"reconcile"}`) {
			s.Error(body)
		}
	})
}

// TestReconcileSays checks the log line of a run. Without evidence, a run counts the payments
// in doubt and says that it had no evidence. A corrupt record does not make the run fail. If
// the index cannot be read, the run and the invocation fail, and the ledger must not be ready.
// The line must then have ReconcileFailed but no counts of payments, because an incomplete
// count could end an alarm. If only an optional probe fails, the deployment stays ready.
func TestReconcileSays(t *testing.T) {
	throttled := errors.New("throttled")
	type line = map[string]any
	for _, c := range []struct {
		down   string // the names of the probes that fail
		change func(s *scheduled)
		fails  error
		want   line
	}{
		{"", func(*scheduled) {}, nil, line{
			"evidence": false, "CannotTell": 2.0, "Open": 2.0, "RefundsDue": 1.0, "ReconcileFailed": 0.0, "level": "INFO",
			"Ready": 1.0, "ReadyLedger": 1.0, "ReadyFacilitator": 1.0, "ReadyResolvers": 1.0, "ReadyChain": 1.0, "not_ready": nil,
		}},
		{"chain", func(s *scheduled) {
			corrupt := s.claim(ledger.Submission{Key: "strange", AuthDigest: "a", Terms: json.RawMessage("{}")})
			testbed.Check(corrupt.End(s.Context(), ledger.EventUncertain, "timeout", ""))
			time.Sleep(time.Minute) // until the lease of the record ends
		}, nil, line{
			"ReconcileFailed": 1.0, "failed": 1.0, "level": "INFO",
			"Ready": 1.0, "ReadyFacilitator": 1.0, "ReadyChain": 0.0, "not_ready": []any{"chain"},
		}},
		{"facilitator resolvers", func(*scheduled) {}, nil, line{
			"level": "INFO", "not_ready": []any{"facilitator", "resolvers"},
			"Ready": 0.0, "ReadyLedger": 1.0, "ReadyFacilitator": 0.0, "ReadyResolvers": 0.0, "ReadyChain": 1.0,
		}},
		// A deployment that sells nothing needs no facilitator.
		{"facilitator", func(s *scheduled) { s.Paused = true }, nil, line{"Ready": 1.0, "ReadyFacilitator": nil, "not_ready": nil}},
		{"", func(s *scheduled) { s.Index = brokenIndex{throttled} }, throttled, line{
			"level": "ERROR", "ReconcileFailed": 1.0, "Open": nil, "CannotTell": nil, "OwedUnclaimed": nil, "RefundsDue": nil, "Left": nil,
			"error": "list open records: throttled\nlist owed records: throttled",
			"Ready": 0.0, "ReadyLedger": 0.0, "ReadyFacilitator": 1.0, "not_ready": nil,
		}},
	} {
		testReconcile(t, func(s *scheduled) {
			c.change(s)
			var probes []service.Probe
			for _, name := range []string{service.ProbeLedger, service.ProbeFacilitator, service.ProbeResolvers, service.ProbeChain} {
				probes = append(probes, service.Probe{Name: name, Optional: name == service.ProbeChain, Check: func(ctx context.Context) error {
					if strings.Contains(c.down, name) {
						<-ctx.Done()
					}
					return ctx.Err()
				}})
			}
			line, got := s.run(s.Context(), c.fails, probes...), map[string]any{}
			for name := range c.want {
				got[name] = line[name]
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				s.Errorf("%q down: line (-want +got):\n%s", c.down, diff)
			}
		})
	}
}

// readyRequester returns a function that requests /ready from a handler with these probes, and
// checks the status of the answer. The origin has an invalid ownership proof. shift moves the
// wall clock of the handler, but not its monotonic clock.
func readyRequester(t *testing.T, shift *time.Duration, probes ...service.Probe) func(what string, status int) (body string) {
	at := platform()
	at.Now = func() time.Time { return time.Now().Round(0).Add(*shift) }
	offering := service.Offering{Site: discovery.Site{Terms: testTerms(), OwnershipProofs: []string{"0x00"}}}
	h := service.Health(at, offering, nil, probes, nil, map[string]string{"payee": "not yours"})
	return func(what string, status int) string {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ready", nil))
		checkEqual(t, what+": "+w.Body.String(), w.Code, status)
		return w.Body.String()
	}
}

// TestReadyIsKept checks that the results of the probes, good or bad, are used for 15 s by the
// wall clock.
func TestReadyIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shift time.Duration
		var probeErr error
		asked := 0
		asks := readyRequester(t, &shift, service.Probe{Name: "ledger", Check: func(context.Context) error {
			asked++
			return probeErr
		}})
		for _, c := range []struct {
			name          string
			wait, shift   time.Duration
			probeErr      error
			status, asked int
		}{
			{name: "first", status: 200, asked: 1},
			{name: "kept", wait: 15*time.Second - time.Nanosecond, probeErr: errors.New("gone"), status: 200, asked: 1},
			{name: "asked again", wait: time.Nanosecond, probeErr: errors.New("gone"), status: 503, asked: 2},
			{name: "a failure is kept", status: 503, asked: 2},
			{name: "after a freeze", shift: time.Hour, status: 200, asked: 3},
			{name: "a clock set back", shift: -time.Hour, probeErr: errors.New("gone"), status: 503, asked: 4},
		} {
			probeErr, shift = c.probeErr, c.shift
			time.Sleep(c.wait)
			asks(c.name, c.status)
			checkEqual(t, c.name+": probes", asked, c.asked)
		}
	})
}

// TestReadyNamesWhatFails checks that the probes run at the same time, and that a probe
// without a reply ends after 2 s. The answer must name each failure. If only optional probes
// fail, the service stays ready.
func TestReadyNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		chain := service.Probe{Name: "chain", Optional: true, Check: func(context.Context) error { panic("oops") }}
		const warns = `"ownership_proofs":{"status":"warning","message":"1 of OWNERSHIP_PROOFS are not the payee's ` +
			`signature of https://api.example.com"},"payee":{"status":"warning","message":"not yours"}`
		const optional = `"chain":{"status":"warning","message":"chain does not answer"},`
		checkEqual(t, "warnings", readyRequester(t, new(time.Duration), chain)("warnings", 200), `{"status":"ready","checks":{`+optional+warns+`}}`)
		begun := time.Now()
		got := readyRequester(t, new(time.Duration), chain,
			service.Probe{Name: "ledger", Check: silent}, service.Probe{Name: "resolvers", Check: silent},
			service.Probe{Name: "receipts", Optional: true, Check: func(context.Context) error {
				return fmt.Errorf("a private cause: %w", service.Public("the key is not published"))
			}},
			service.Probe{Name: "facilitator", Check: func(context.Context) error { return fault.New(fault.FacilitatorMisconfigured, nil) }},
		)("two say nothing", 503)
		checkEqual(t, "it took", time.Since(begun), 2*time.Second)
		checkEqual(t, "failures", got, `{"status":"not_ready","checks":{`+optional+
			`"facilitator":{"status":"failing","code":"facilitator_misconfigured","message":"`+fault.New(fault.FacilitatorMisconfigured, nil).Public()+`"},`+
			`"ledger":{"status":"failing","message":"ledger does not answer"},`+warns+
			`,"receipts":{"status":"warning","message":"the key is not published"}`+
			`,"resolvers":{"status":"failing","message":"resolvers does not answer"}}}`)
	})
}

// unreadableIndex is a ledger whose index the service has no permission to read. It counts the
// attempts to read the index.
type unreadableIndex struct {
	ledger.Store
	attempts *atomic.Int32
}

// List implements ledger.Index.
func (u unreadableIndex) List(context.Context, string, time.Time, ledger.Place, int) ([]ledger.Place, error) {
	u.attempts.Add(1)
	return nil, errors.New("access denied")
}

// TestIndexIsReconciles checks that a function that sells does not read the index. Only the
// scheduled function may search the index for payments that are not settled.
func TestIndexIsReconciles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var read atomic.Int32
		f := newFleet(t, 1, dnsExplorer, func(p *parts) { p.Ledger = unreadableIndex{p.Ledger, &read} })
		for range 3 {
			if r := f.send(0, victim, "example.com", ""); r.Status != http.StatusPaymentRequired {
				t.Errorf("%d %s", r.Status, r.Body)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
		}
		if n := read.Load(); n > 0 {
			t.Errorf("the index was read %d times", n)
		}
	})
}
