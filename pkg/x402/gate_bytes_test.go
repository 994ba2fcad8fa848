package x402_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	random "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// plainGate is a Gate over the real clock and a real facilitator client.
func plainGate(store ledger.Store, f x402.Facilitator, e x402.Evidence) *x402.Gate {
	return x402.NewGate(x402.GateConfig{
		Ledger:      ledger.New(store, time.Now, rand.Text),
		Facilitator: f, Evidence: e, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

func plainRequest(o *x402.Offer, header, path string) x402.Request {
	return x402.Request{
		Signature: header, Offer: o, Deadline: time.Now().Add(27 * time.Second),
		Prepare: func() (x402.Job, error) {
			return x402.Job{
				Fingerprint: path, Budget: 8 * time.Second, Timeout: fault.DNSTimeout,
				Run: func(context.Context) (x402.Reply, error) { return x402.Reply{Body: []byte(`{"ok":true}`)}, nil },
			}, nil
		},
		Error: func(*fault.Error, x402.Standing) []byte { return []byte("{}") },
	}
}

// listed is the offer of a real operation, with all of its extensions.
func listed(t *testing.T) *x402.Offer {
	t.Helper()
	o := must(x402.NewOffer(discovery.Offer(catalog.DNS(), discovery.Site{Origin: "https://api.example.com", Terms: terms()})))
	return o
}

// recorder is a facilitator that keeps what it is sent, finds every signature
// valid, and settles nothing.
type recorder struct {
	mu   sync.Mutex
	sent map[string][]string // path to bodies
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.sent[q.URL.Path] = append(r.sent[q.URL.Path], string(body))
	r.mu.Unlock()
	if q.URL.Path == "/verify" {
		_, _ = io.WriteString(w, `{"isValid":true}`)
		return
	}
	w.WriteHeader(http.StatusInternalServerError)
}

// sends returns what a facilitator gets of a payment that nobody has seen
// before, by path.
func sends(t *testing.T, o *x402.Offer, header string) map[string][]string {
	t.Helper()
	r := &recorder{sent: map[string][]string{}}
	server := httptest.NewServer(r)
	defer server.Close()
	client := must(facilitator.New(facilitator.Config{URL: server.URL}))
	out := plainGate(&ledgertest.Memory{}, client, nil).Serve(t.Context(), plainRequest(o, header, "GET /a"))
	if out.Fault == nil || out.Fault.Code != fault.SettlementUncertain {
		t.Fatalf("answered %d, %v", out.Status, out.Fault)
	}
	return r.sent
}

// What a client puts around its authorization and its signature does not reach
// the facilitator: one authorization is always the same bytes.
func TestOneAuthorizationIsSentAsTheSameBytes(t *testing.T) {
	t.Parallel()
	wallet := must(x402test.NewWallet(rand.Reader))
	o := listed(t)
	for name, calls := range map[string][]string{"a key": {"/settle"}, "a contract": {"/settle", "/verify"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := must(wallet.Draft(o.Required(""), time.Now()))
			if len(calls) == 2 {
				contractPayer(&d)
			}
			plain := must(wallet.Seal(d))
			want := sends(t, o, plain)
			if got := slices.Sorted(maps.Keys(want)); !slices.Equal(got, calls) {
				t.Fatalf("calls %v, want %v", got, calls)
			}
			for seed := range uint64(150) {
				header := disguised(t, plain, random.New(random.NewPCG(seed, 1)))
				got := sends(t, o, header)
				for path, bodies := range want {
					if !slices.Equal(bodies, got[path]) {
						t.Fatalf("seed %d: %s is sent\n%s\ninstead of\n%s", seed, path, got[path], bodies)
					}
				}
			}
		})
	}
}

// What is sent is the offer's: its terms, its resource, its listing, and never
// a name of the payment.
func TestWhatTheFacilitatorIsSent(t *testing.T) {
	t.Parallel()
	wallet := must(x402test.NewWallet(rand.Reader))
	o := listed(t)
	d := must(wallet.Draft(o.Required(""), time.Now()))
	d.Payload.Extensions, d.Payload.Resource = nil, nil // a client that echoes nothing
	header := must(wallet.Seal(d))
	var body struct {
		PaymentPayload      map[string]json.RawMessage
		PaymentRequirements json.RawMessage
	}
	if err := json.Unmarshal([]byte(sends(t, o, header)["/settle"][0]), &body); err != nil {
		t.Fatal(err)
	}
	required := o.Required("")
	extensions := maps.Clone(required.Extensions)
	if _, offered := extensions[x402.ExtensionIdentifier]; !offered || len(extensions) < 2 {
		t.Fatalf("the offer has the extensions %v", slices.Sorted(maps.Keys(extensions)))
	}
	delete(extensions, x402.ExtensionIdentifier)
	for member, want := range map[string]any{"accepted": required.Accepts[0], "resource": required.Resource, "extensions": extensions} {
		text := must(json.Marshal(want))
		if got := string(body.PaymentPayload[member]); got != string(text) {
			t.Errorf("%s is\n%s\nwant\n%s", member, got, text)
		}
	}
	if a := string(body.PaymentPayload["accepted"]); a != string(body.PaymentRequirements) {
		t.Errorf("accepted %s, required %s", a, body.PaymentRequirements)
	}
	if got := slices.Sorted(maps.Keys(body.PaymentPayload)); !slices.Equal(got, []string{"accepted", "extensions", "payload", "resource", "x402Version"}) {
		t.Errorf("members %v", got)
	}
}

// A facilitator that keeps results by the payment's name cannot answer one
// payer with another's settlement: it never learns the name.
func TestNameOfOnePayerServesNobodyElse(t *testing.T) {
	t.Parallel()
	rich := must(x402test.NewWallet(rand.Reader))
	known := map[string]bool{}
	moved, served := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ PaymentPayload x402.Payload }
		_ = json.NewDecoder(r.Body).Decode(&in) // garbage has no name, and is nobody's
		var e struct{ Info struct{ ID string } }
		_ = json.Unmarshal(in.PaymentPayload.Extensions[x402.ExtensionIdentifier], &e)
		switch {
		case e.Info.ID != "" && known[e.Info.ID]:
		case !strings.EqualFold(in.PaymentPayload.Payload.Authorization.From, rich.Address().String()):
			_, _ = io.WriteString(w, `{"success":false,"errorReason":"invalid_exact_evm_insufficient_balance","transaction":"","network":"eip155:8453"}`)
			return
		default:
			moved++
			known[e.Info.ID] = true
		}
		_, _ = io.WriteString(w, `{"success":true,"transaction":"`+tx+`","network":"eip155:8453"}`)
	}))
	defer server.Close()
	client := must(facilitator.New(facilitator.Config{URL: server.URL}))
	g := plainGate(&ledgertest.Memory{}, client, &fakeEvidence{f: x402.Finding{Verdict: x402.StillOpen}})
	o := listed(t)
	for i := range 10 {
		w := rich
		if i > 0 { // an empty account
			w = must(x402test.NewWallet(rand.Reader))
		}
		d := must(w.Draft(o.Required(""), time.Now()))
		d.Payload.Extensions = map[string]json.RawMessage{x402.ExtensionIdentifier: withMembers(t, d.Payload.Extensions[x402.ExtensionIdentifier], "info", map[string]any{"id": "pay_7d5d747be160e280504c099d984bcfe0"})}
		h := must(w.Seal(d))
		if out := g.Serve(t.Context(), plainRequest(o, h, fmt.Sprint("GET /", i))); out.Status == http.StatusOK {
			served++
		}
	}
	if moved != 1 || served != moved {
		t.Errorf("%d answers were served, and money moved %d times", served, moved)
	}
}

// withMembers adds members to the object at a key of a JSON object.
func withMembers(t *testing.T, raw json.RawMessage, key string, more map[string]any) json.RawMessage {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	maps.Copy(tree[key].(map[string]any), more)
	out := must(json.Marshal(tree))
	return out
}

// disguised is another header of the same authorization and signature: with
// unknown members, extensions with words of the client's own, hexadecimal
// digits in another letter case, and other order and white space.
func disguised(t *testing.T, header string, r *random.Rand) string {
	t.Helper()
	raw := must(base64.StdEncoding.DecodeString(header))
	var p map[string]any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	payload := p["payload"].(map[string]any)
	authorization := payload["authorization"].(map[string]any)
	for _, field := range []string{"from", "to", "nonce"} {
		authorization[field] = recased(authorization[field].(string), r)
	}
	payload["signature"] = recased(payload["signature"].(string), r)
	p["resource"] = map[string]any{"url": "https://evil.example", "description": words(r)}
	extensions := p["extensions"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(extensions)) {
		echo := extensions[key].(map[string]any)
		extend(echo, r)
		extend(echo["info"].(map[string]any), r)
		if key == x402.ExtensionIdentifier && r.IntN(2) == 0 {
			echo["info"].(map[string]any)["id"] = fmt.Sprintf("pay_%032x", r.Uint64())
		} else if r.IntN(4) == 0 {
			delete(extensions, key)
		}
	}
	for _, o := range []map[string]any{p, payload, authorization, extensions, p["accepted"].(map[string]any), p["accepted"].(map[string]any)["extra"].(map[string]any)} {
		extend(o, r)
	}
	if r.IntN(5) == 0 {
		delete(p, "extensions")
	}
	var b strings.Builder
	scribble(&b, p, r)
	return base64.StdEncoding.EncodeToString([]byte(b.String()))
}

func extend(o map[string]any, r *random.Rand) {
	for range r.IntN(3) {
		name := []string{"routeTemplate", "note", "description", "x", "serviceName"}[r.IntN(5)]
		if _, ours := o[name]; !ours {
			o[name] = []any{words(r), map[string]any{"name": words(r)}, json.Number("7"), nil, true}[r.IntN(5)]
		}
	}
}

func words(r *random.Rand) string {
	return fmt.Sprintf("send USDC to 0x%x <b>instead</b> \u2028 ü", r.Uint64())
}

// recased changes the letter case of hexadecimal digits.
func recased(digits string, r *random.Rand) string {
	return "0x" + strings.Map(func(c rune) rune {
		if r.IntN(2) == 0 {
			return []rune(strings.ToUpper(string(c)))[0]
		}
		return []rune(strings.ToLower(string(c)))[0]
	}, digits[2:])
}

// scribble writes JSON with random order and white space.
func scribble(b *strings.Builder, v any, r *random.Rand) {
	space := func() { b.WriteString([]string{"", " ", "\n", "\t  "}[r.IntN(4)]) }
	o, ok := v.(map[string]any)
	if !ok {
		raw, _ := json.Marshal(v) // strings, numbers, lists: they always encode
		b.Write(raw)
		return
	}
	names := slices.Sorted(maps.Keys(o))
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		space()
		raw, _ := json.Marshal(name)
		b.Write(raw)
		space()
		b.WriteByte(':')
		space()
		scribble(b, o[name], r)
	}
	space()
	b.WriteByte('}')
}
