package facilitator

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestNewRefusesBadConfig(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"facilitator", "ftp://example.com", "https:///path", "https:example.com", "https://user:hunter2@example.com",
		"https://example.com/?key=hunter2", "https://example.com/?", "https://example.com/#hunter2", "https://user:hunter2@exa mple.com",
		"https://example.com/hunter2\x7f", "https://example.com/" + strings.Repeat("a", maxURL),
	} {
		if _, err := New(Config{URL: raw}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, agent := range []string{"evil\r\nX: y", strings.Repeat("a", maxReason+1)} {
		if _, err := New(Config{UserAgent: agent}); err == nil {
			t.Errorf("user agent %q accepted", agent)
		}
	}
}

// TestRejected checks that only a 401 is reported as a rejection of the credentials.
func TestRejected(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 400, 401, 402, 403, 429, 500} {
		rejected := false
		load := func(context.Context, time.Time) (Credentials, error) { return Bearer("token") }
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		settle(t, must(New(Config{URL: url, Credentials: Lazy(load, func() { rejected = true })})))
		equal(t, fmt.Sprint("rejected with ", status), status == http.StatusUnauthorized, rejected)
	}
}

// TestNothingIsSent checks that nothing is sent if a request is invalid or cannot be made. The
// code and the reason of the result must say why.
func TestNothingIsSent(t *testing.T) {
	t.Parallel()
	broken := errors.New("access denied")
	fails := func(with error) Credentials {
		return Lazy(func(context.Context, time.Time) (Credentials, error) { return Credentials{}, with }, nil)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ending, cancel := context.WithCancel(t.Context())
	slow := Lazy(func(context.Context, time.Time) (Credentials, error) { cancel(); return Credentials{}, broken }, nil)
	good, bad := testPayload(), testPayload()
	bad.Accepted = json.RawMessage(`{`) // cannot be encoded
	for name, c := range map[string]struct {
		ctx     context.Context
		payload x402.Payload
		config  Config
		code    fault.Code
		reason  string
	}{
		"no URL":            {ctx: t.Context(), payload: good, config: Config{}, code: fault.FacilitatorMisconfigured, reason: "no_facilitator"},
		"bad payload":       {ctx: t.Context(), payload: bad, config: Config{URL: origin}, code: fault.PaymentUnavailable, reason: "not_encodable"},
		"ended context":     {ctx: ended, payload: good, config: Config{URL: origin}, code: fault.FacilitatorUnavailable, reason: "timeout"},
		"no secret":         {ctx: t.Context(), payload: good, config: Config{URL: origin, Credentials: fails(broken)}, code: fault.FacilitatorMisconfigured, reason: "credentials_unreadable"},
		"silent secrets":    {ctx: t.Context(), payload: good, config: Config{URL: origin, Credentials: fails(ErrUnreachable)}, code: fault.FacilitatorUnavailable, reason: "credentials_unreachable"},
		"no secret in time": {ctx: ending, payload: good, config: Config{URL: origin, Credentials: slow}, code: fault.FacilitatorUnavailable, reason: "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			f := must(New(c.config))
			f.transport = func(context.Context) http.RoundTripper { t.Error("something was sent"); return nil }
			s := f.Settle(c.ctx, c.payload, testRequirements())
			if s.Class != x402.NotSent || s.Code != c.code || s.Reason != c.reason || s.Cause == nil {
				t.Errorf("settle: %+v", s)
			}
			if v := f.Verify(c.ctx, c.payload, testRequirements()); v.Valid || v.Fault == nil || v.Fault.Code != c.code {
				t.Errorf("verify: %+v", v)
			}
			if name == "bad payload" {
				return
			}
			if err := f.Supported(c.ctx, network); fault.From(err).Code != c.code {
				t.Errorf("supported: %v", err)
			}
		})
	}
}

// TestRequestsOnTheWire calls Settle, Verify and Supported, and checks the bytes of each
// request. The settlement is pending at first, so Settle sends two requests. They must have the
// same bytes, except that each has a new token. The test also checks the results and the
// client's name.
func TestRequestsOnTheWire(t *testing.T) {
	t.Parallel() // this test takes a second, because it really waits before the second request
	const agent = "Hostfacts/1 (+https://example.com)"
	script := []string{pendingA, settled, `{"isValid":true,"payer":"` + strings.ToLower(payer) + `"}`, `{"kinds":[]}`}
	var requests []string
	nonces := map[any]bool{}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		token, err := jwt.Parse(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), func(*jwt.Token) (any, error) {
			return ed25519.NewKeyFromSeed(seed).Public(), nil
		}, jwt.WithIssuedAt())
		if err != nil {
			t.Error(err)
			return
		}
		nonces[token.Header["nonce"]] = true
		r.Header.Set("Authorization", fmt.Sprint(token.Claims.(jwt.MapClaims)["uris"]))
		requests = append(requests, strings.ReplaceAll(string(must(httputil.DumpRequest(r, true))), r.Host, "HOST"))
		w.Header().Set("EXTENSION-RESPONSES", encodeNote(`{"bazaar":{"status":"rejected","rejectedReason":"invalid_info","secret":"x"}}`))
		_, _ = io.WriteString(w, script[len(requests)-1])
	})
	f := must(New(Config{URL: url + "/platform/v2/x402/", Credentials: must(CDP("key", edSecret())), UserAgent: agent}))
	equal(t, "settlement", x402.Settlement{
		Class: x402.Moved, Transaction: hash, Payer: payer, Network: network,
		ExtensionResponses: map[string]string{"bazaar.status": "rejected", "bazaar.rejectedReason": "invalid_info"},
	}, settle(t, f))
	if v := f.Verify(t.Context(), testPayload(), testRequirements()); !v.Valid {
		t.Fatalf("verify: %+v", v)
	}
	if err := f.Supported(t.Context(), network); fault.From(err).Code != fault.FacilitatorMisconfigured {
		t.Fatalf("supported: %v", err)
	}

	const body = `{"x402Version":2,"paymentPayload":{"x402Version":2,"accepted":{"scheme":"exact","network":"eip155:8453",` +
		`"extra":{"name":"USD Coin","more":[1,2]}},"payload":{"signature":"0xa719","authorization":{"from":"` + payer + `","to":"` + other +
		`","value":"1000","validAfter":"0","validBefore":"1795213526","nonce":"0x56"}}},"paymentRequirements":{"scheme":"exact",` +
		`"network":"eip155:8453","asset":"0x5f","amount":"1000","payTo":"` + other + `","maxTimeoutSeconds":300,` +
		`"extra":{"name":"USD Coin","version":"2","paymentFlow":"upfront"}}}`
	request := func(method, call, ofBody, body string) string {
		at := "/platform/v2/x402/" + call
		return strings.ReplaceAll(method+" "+at+" HTTP/1.1\nHost: HOST\nAccept: application/json\nAccept-Encoding: identity\n"+
			"Authorization: ["+method+" HOST"+at+"]\nConnection: close\n"+ofBody+"User-Agent: "+agent+"\n\n", "\n", "\r\n") + body
	}
	ofBody := fmt.Sprintf("Content-Length: %d\nContent-Type: application/json\n", len(body))
	settle := request("POST", "settle", ofBody, body)
	want := []string{settle, settle, request("POST", "verify", ofBody, body), request("GET", "supported", "", "")}
	equal(t, "requests", want, requests)
	if want := url[len("http://"):] + "/platform/v2/x402"; f.Name() != want {
		t.Errorf("it is called %q, want %q", f.Name(), want)
	}
	if len(nonces) != len(want) {
		t.Errorf("nonces %v", nonces)
	}
}

// TestResend plays the answers to the first and the second request of a settlement. The client
// must send the second request only if the first answer says that the settlement is pending,
// and if the caller's time allows it. It must send it one second after the first. If the second
// answer is not a success, the payment must remain in doubt. The last case checks that the
// client ends a request without a deadline after its own time limit (ceiling). The clock is
// fake.
func TestResend(t *testing.T) {
	const once, twice = "[0s]", "[0s 1s]"
	for name, c := range map[string]resend{
		"settled":                   {first: pendingA, second: settled, budget: 10 * time.Second, at: twice, want: "settled " + hash},
		"settled, by no deadline":   {first: pendingA, second: settled, at: twice, want: "settled " + hash},
		"settled, by another hash":  {first: pendingA, second: strings.ReplaceAll(settled, hash, hash2), at: twice, want: "settled " + hash2},
		"still pending":             {first: pendingA, second: pendingA, at: twice, want: "unknown " + hash},
		"refused":                   {first: pendingA, second: refusalAnswer("insufficient_funds"), at: twice, want: "unknown " + hash},
		"used":                      {first: pendingA, second: refusalAnswer(x402.ReasonNonceUsed), at: twice, want: "unknown " + hash},
		"not sent":                  {first: pendingA, at: twice, want: "unknown " + hash},
		"a hash that comes late":    {first: refusalAnswer("settlement_pending"), second: pendingA, at: twice, want: "unknown " + hash},
		"just enough time":          {first: pendingA, second: settled, budget: 2 * time.Second, at: twice, want: "settled " + hash},
		"too little":                {first: pendingA, second: settled, budget: 2*time.Second - 1, at: once, want: "unknown " + hash},
		"the caller gives up":       {first: pendingA, second: settled, budget: -1, at: once, want: "unknown " + hash},
		"what is not pending stays": {first: refusalAnswer("insufficient_funds"), second: settled, at: once, want: "refused "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, c.check)
		})
	}
	t.Run("a call has an end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			s := clientOver(t, func(r *http.Request) (*http.Response, error) {
				callHooks(r, true)
				<-r.Context().Done()
				return nil, r.Context().Err()
			}).Settle(t.Context(), testPayload(), testRequirements())
			if s.Class != x402.Unknown || s.Reason != "timeout" || time.Since(start) != ceiling {
				t.Errorf("after %s: %+v", time.Since(start), s)
			}
		})
	})
}

// resend holds the facilitator's answers to the first and the second request of a settlement,
// and what Settle must make of them.
type resend struct {
	first, second string
	// budget is the time until the caller's deadline. 0 means that the caller sets no
	// deadline. A negative budget means that the caller gives up before the second request.
	budget time.Duration
	at     string // when each request was sent, measured from the beginning of the call
	want   string // expected class and transaction of the result
}

func (c resend) check(t *testing.T) {
	var at []time.Duration
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if c.budget > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.budget)
		defer cancel()
	}
	s := clientOver(t, func(r *http.Request) (*http.Response, error) {
		at = append(at, time.Since(start))
		body := "" // the body stays empty for a third request, which must never come
		switch len(at) {
		case 1:
			body = c.first
			if c.budget < 0 {
				time.AfterFunc(resendWait/2, cancel)
			}
		case 2:
			body = c.second
		}
		callHooks(r, body != "")
		if body == "" {
			return nil, errors.New("not connected")
		}
		return respond(500, body), nil
	}).Settle(ctx, testPayload(), testRequirements())
	if got := s.Class.String() + " " + s.Transaction; got != c.want || fmt.Sprint(at) != c.at || s.NonceUsed || s.Code != "" {
		t.Errorf("%s at %v: %+v", got, at, s)
	}
	doubt := s.Class == x402.Unknown
	if doubt != (s.Reason == "settlement_pending") || len(at) == 2 && doubt != (s.Cause != nil) {
		t.Errorf("reason %q, cause %v", s.Reason, s.Cause)
	}
}

// TestProofOfNotSent checks that a failed request counts as not sent only if the transport has
// reported that it looked for a connection, and has not reported that it wrote anything.
func TestProofOfNotSent(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, row := range []struct {
		name      string
		transport roundTrip
		class     x402.Class
	}{
		{"nothing written", func(r *http.Request) (*http.Response, error) { callHooks(r, false); return nil, broken }, x402.NotSent},
		{"a header field written", func(r *http.Request) (*http.Response, error) { callHooks(r, true); return nil, broken }, x402.Unknown},
		{"a silent transport", func(*http.Request) (*http.Response, error) { return nil, broken }, x402.Unknown},
		{"written on the first of two connections", func(r *http.Request) (*http.Response, error) {
			callHooks(r, true)
			callHooks(r, false)
			return nil, broken
		}, x402.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			if s := clientOver(t, row.transport).Settle(t.Context(), testPayload(), testRequirements()); s.Class != row.class || !errors.Is(s.Cause, broken) {
				t.Errorf("got %+v", s)
			}
		})
	}
}
