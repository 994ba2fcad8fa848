package facilitator

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func TestNewRefusesBadConfig(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"relative":    "facilitator",
		"scheme":      "ftp://example.com",
		"no host":     "https:///path",
		"opaque":      "https:example.com",
		"password":    "https://user:hunter2@example.com",
		"query":       "https://example.com/?key=hunter2",
		"empty query": "https://example.com/?",
		"fragment":    "https://example.com/#hunter2",
		"unparsable":  "https://user:hunter2@exa mple.com",
		"control":     "https://example.com/hunter2\x7f",
		"long":        "https://example.com/" + strings.Repeat("a", maxURL),
	} {
		_, err := New(Config{URL: raw})
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error quotes the URL: %v", name, err)
		}
	}
	if _, err := New(Config{UserAgent: "evil\r\nX: y"}); err == nil {
		t.Error("user agent with a line break accepted")
	}
}

func TestWithoutURLEveryCallIsMisconfigured(t *testing.T) {
	t.Parallel()
	f, err := New(Config{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("something was sent")
		return nil, errors.New("no")
	})})
	if err != nil {
		t.Fatal(err)
	}
	s := f.Settle(t.Context(), testPayload(), testRequirements())
	if s.Class != x402.NotSent || s.Code != fault.FacilitatorMisconfigured {
		t.Errorf("settle: %+v", s)
	}
	if v := f.Verify(t.Context(), testPayload(), testRequirements()); v.Valid || v.Fault == nil || v.Fault.Code != fault.FacilitatorMisconfigured {
		t.Errorf("verify: %+v", v)
	}
	if err := f.Supported(t.Context(), network); fault.From(err).Code != fault.FacilitatorMisconfigured {
		t.Errorf("supported: %v", err)
	}
}

func TestPayloadThatCannotBeEncodedIsNotSent(t *testing.T) {
	t.Parallel()
	f := newClient(t, Config{URL: "http://127.0.0.1:1"})
	p := testPayload()
	p.Accepted = json.RawMessage(`{`)
	if s := f.Settle(t.Context(), p, testRequirements()); s.Class != x402.NotSent || s.Code != fault.PaymentUnavailable || s.Cause == nil {
		t.Errorf("settle: %+v", s)
	}
	if v := f.Verify(t.Context(), p, testRequirements()); v.Valid || v.Fault == nil || v.Fault.Code != fault.PaymentUnavailable {
		t.Errorf("verify: %+v", v)
	}
}

// seen is one request as a server received it.
type seen struct {
	Line, Type, Agent, Auth, Encoding, Idempotency string
	Length                                         int64
	Body                                           string
}

// recorder is a facilitator that answers a script, one entry per request.
type recorder struct {
	mu     sync.Mutex
	seen   []seen
	script []string // "status body"
}

func (s *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seen{
		Line: r.Method + " " + r.URL.Path, Type: r.Header.Get("Content-Type"), Agent: r.UserAgent(),
		Auth: r.Header.Get("Authorization"), Encoding: r.Header.Get("Accept-Encoding"),
		Idempotency: r.Header.Get("Idempotency-Key") + r.Header.Get("X-Idempotency-Key"),
		Length:      r.ContentLength, Body: string(b),
	})
	body := s.script[min(len(s.seen), len(s.script))-1]
	if strings.HasPrefix(body, "500 ") {
		w.WriteHeader(500)
		body = body[4:]
	}
	_, _ = io.WriteString(w, body)
}

func TestRequestsOnTheWire(t *testing.T) {
	t.Parallel()
	rec := &recorder{script: []string{"500 " + pendingA, settled, `{"isValid":true}`, `{"kinds":[]}`}}
	srv := httptest.NewServer(rec)
	defer srv.Close()
	token, err := Bearer("s3cret")
	if err != nil {
		t.Fatal(err)
	}
	f := newClient(t, Config{URL: srv.URL + "/platform/v2/x402/", Credentials: token, UserAgent: "Hostfacts/1 (+https://example.com)"})
	ctx := within(t, 5*time.Second)
	if s := f.Settle(ctx, testPayload(), testRequirements()); s.Class != x402.Moved || s.Transaction != hash {
		t.Fatalf("settle: %+v", s)
	}
	if v := f.Verify(ctx, testPayload(), testRequirements()); !v.Valid {
		t.Fatalf("verify: %+v", v)
	}
	if err := f.Supported(ctx, network); fault.From(err).Code != fault.FacilitatorMisconfigured {
		t.Fatalf("supported: %v", err)
	}

	const body = `{"x402Version":2,"paymentPayload":{"x402Version":2,"accepted":{"scheme":"exact","network":"eip155:8453","extra":{"name":"USD Coin","more":[1,2]}},` +
		`"payload":{"signature":"0xa719","authorization":{"from":"` + payer + `","to":"` + other + `","value":"1000","validAfter":"0","validBefore":"1795213526","nonce":"0x56"}}},` +
		`"paymentRequirements":{"scheme":"exact","network":"eip155:8453","asset":"0x5f","amount":"1000","payTo":"` + other + `","maxTimeoutSeconds":300,"extra":{"name":"USD Coin","version":"2","paymentFlow":"upfront"}}}`
	post := seen{"POST /platform/v2/x402/settle", "application/json", "Hostfacts/1 (+https://example.com)", "Bearer s3cret", "identity", "", int64(len(body)), body}
	verify, get := post, post
	verify.Line = "POST /platform/v2/x402/verify"
	get.Line, get.Type, get.Body, get.Length = "GET /platform/v2/x402/supported", "", "", 0
	if diff := cmp.Diff([]seen{post, post, verify, get}, rec.seen); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestExtensionResponsesReachTheSettlement(t *testing.T) {
	t.Parallel()
	note := base64.StdEncoding.EncodeToString([]byte(`{"bazaar":{"status":"rejected","rejectedReason":"invalid_info","secret":"x"}}`))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("EXTENSION-RESPONSES", note)
		_, _ = io.WriteString(w, settled)
	}))
	defer srv.Close()
	s := newClient(t, Config{URL: srv.URL}).Settle(within(t, 5*time.Second), testPayload(), testRequirements())
	want := x402.Settlement{
		Class: x402.Moved, Transaction: hash, Payer: payer, Network: network,
		ExtensionResponses: map[string]string{"bazaar.status": "rejected", "bazaar.rejectedReason": "invalid_info"},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("settlement (-want +got):\n%s", diff)
	}
}

// TestResendBudget runs on a fake clock: what happens when, to the second.
func TestResendBudget(t *testing.T) {
	for _, row := range []struct {
		name   string
		wait   time.Duration
		budget time.Duration // 0: the caller sets no deadline
		at     []time.Duration
		class  x402.Class
	}{
		{"default pause", 0, 10 * time.Second, []time.Duration{0, time.Second}, x402.Moved},
		{"no deadline", 0, 0, []time.Duration{0, time.Second}, x402.Moved},
		{"longer pause", 3 * time.Second, 10 * time.Second, []time.Duration{0, 3 * time.Second}, x402.Moved},
		{"no pause", -1, 10 * time.Second, []time.Duration{0, 0}, x402.Moved},
		{"just enough", 0, 2 * time.Second, []time.Duration{0, time.Second}, x402.Moved},
		{"too little", 0, 2*time.Second - 1, []time.Duration{0}, x402.Unknown},
		{"too little without a pause", -1, time.Second - 1, []time.Duration{0}, x402.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var at []time.Duration
				f, err := New(Config{URL: "https://facilitator.example", ResendWait: row.wait,
					Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
						hooks(r, true)
						if at = append(at, time.Since(start)); len(at) == 1 {
							return respond(500, pendingA), nil
						}
						return respond(200, settled), nil
					})})
				if err != nil {
					t.Fatal(err)
				}
				ctx := t.Context()
				if row.budget > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.budget)
					defer cancel()
				}
				s := f.Settle(ctx, testPayload(), testRequirements())
				if s.Class != row.class || s.Transaction != hash {
					t.Errorf("got %+v", s)
				}
				if diff := cmp.Diff(row.at, at); diff != "" {
					t.Errorf("requests at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestPendingTwiceIsNotAskedAThirdTime(t *testing.T) {
	t.Parallel()
	rec := &recorder{script: []string{"500 " + pendingA}}
	srv := httptest.NewServer(rec)
	defer srv.Close()
	s := newClient(t, Config{URL: srv.URL}).Settle(within(t, 5*time.Second), testPayload(), testRequirements())
	if s.Class != x402.Unknown || s.Transaction != hash || s.Reason != "settlement_pending" {
		t.Errorf("got %+v", s)
	}
	if len(rec.seen) != 2 || rec.seen[0].Body != rec.seen[1].Body {
		t.Errorf("%d requests, want two with the same body", len(rec.seen))
	}
}

func TestCancelDuringThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		ctx, cancel := context.WithCancel(t.Context())
		f, err := New(Config{URL: "https://facilitator.example", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			hooks(r, true)
			calls++
			time.AfterFunc(defaultResendWait/2, cancel)
			return respond(500, pendingA), nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		s := f.Settle(ctx, testPayload(), testRequirements())
		if s.Class != x402.Unknown || s.Transaction != hash || calls != 1 {
			t.Errorf("%d calls, got %+v", calls, s)
		}
	})
}

func TestCeilingEndsACallWithoutDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		f, err := New(Config{URL: "https://facilitator.example", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			hooks(r, true)
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		if err != nil {
			t.Fatal(err)
		}
		s := f.Settle(t.Context(), testPayload(), testRequirements())
		if s.Class != x402.Unknown || s.Reason != "timeout" || time.Since(start) != ceiling {
			t.Errorf("after %s: %+v", time.Since(start), s)
		}
	})
}

// TestProofOfNotSent holds the one rule about transports: only a transport that
// says that it looked for a connection, and wrote nothing, proves anything.
func TestProofOfNotSent(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, row := range []struct {
		name      string
		transport roundTrip
		class     x402.Class
	}{
		{"nothing written", func(r *http.Request) (*http.Response, error) { hooks(r, false); return nil, broken }, x402.NotSent},
		{"a header field written", func(r *http.Request) (*http.Response, error) { hooks(r, true); return nil, broken }, x402.Unknown},
		{"a silent transport", func(*http.Request) (*http.Response, error) { return nil, broken }, x402.Unknown},
		{"written on the first of two connections", func(r *http.Request) (*http.Response, error) {
			hooks(r, true)
			hooks(r, false)
			return nil, broken
		}, x402.Unknown},
	} {
		f := newClient(t, Config{URL: "https://facilitator.example", Transport: row.transport})
		if s := f.Settle(t.Context(), testPayload(), testRequirements()); s.Class != row.class || !errors.Is(s.Cause, broken) {
			t.Errorf("%s: got %+v", row.name, s)
		}
	}
}

func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := newClient(t, Config{URL: "https://facilitator.example", Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("something was sent")
		return nil, errors.New("no")
	})})
	s := f.Settle(ctx, testPayload(), testRequirements())
	if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != "timeout" {
		t.Errorf("got %+v", s)
	}
}
