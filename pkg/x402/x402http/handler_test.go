package x402http_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// books returns a facilitator of play money that settles payments to payTo.
func books() *x402test.Facilitator {
	terms := x402.USDC()
	terms.PayTo = payTo
	return must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now}))
}

const payTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"

// stall is a shop on loopback that sells one handler for play money.
type stall struct {
	*testing.T
	url    string
	seller *x402http.Seller
	client *x402test.Client
	books  *x402test.Facilitator
	runs   atomic.Int32
}

func openStall(t *testing.T, h http.HandlerFunc, options ...x402http.Option) *stall {
	t.Helper()
	s := &stall{T: t}
	s.books = books()
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.client = &x402test.Client{HTTP: &http.Client{CheckRedirect: last}, Wallet: must(x402test.NewWallet(rand.Reader)), Now: time.Now}
	bank := httptest.NewServer(s.books)
	t.Cleanup(bank.Close)
	mux := http.NewServeMux()
	shop := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header["Range"], r.Header["If-None-Match"] = []string{"bytes=0-1"}, []string{"*"}
		mux.ServeHTTP(w, r)
	}))
	origin := "http://" + shop.Listener.Addr().String()
	s.seller = must(x402http.New(x402http.Config{
		PayTo: payTo, Facilitator: bank.URL, Ledger: &ledgertest.Memory{}, Evidence: s.books.Evidence(),
		Origin: origin, OtherOrigins: []string{strings.Replace(origin, "127.0.0.1", "localhost", 1)}, Log: slog.New(slog.DiscardHandler), Budget: time.Second,
	}))
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.runs.Add(1); r.Header.Get(x402.HeaderSignature)+r.Header.Get("Range")+r.Header.Get("If-None-Match") != "" {
			t.Error("the handler sees the signature, or is asked for a part of its answer")
		}
		h(w, r)
	})
	s.seller.Handle(mux, "GET /weather/{city}", "0.01", counted, options...)
	fixed := s.seller.Sell("0.01", counted, options...)
	mux.Handle("GET /weather", fixed)
	mux.Handle("GET /dear/", http.StripPrefix("/dear", s.seller.Sell("1", counted, options...)))
	mux.Handle("GET localhost/weather/{city}", s.seller.Sell("1", counted, options...))
	mux.Handle("POST /mcp", s.seller.MCP("weather", "1.0", mux, x402http.Tool{
		Endpoint: fixed, Path: "/weather", Name: "weather", Description: "The weather.", Params: []x402http.Param{{Name: "city", Required: true}},
	}))
	shop.Start()
	t.Cleanup(shop.Close)
	s.url = origin + "/weather/oslo?b=2&a=1"
	return s
}

// get sends a request, with a payment if the signature is not empty. It follows no redirect.
func (s *stall) get(signature string) x402test.Reply {
	s.Helper()
	return must(s.client.Get(s.Context(), s.url, signature))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestSell checks what the payer gets for every kind of answer of a handler, and how often the
// handler runs if the same payment is sent twice.
func TestSell(t *testing.T) {
	t.Parallel()
	answers := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Set-Cookie", "a=b")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	long := make([]byte, 32<<20+1) // made here and not in the handler, which has only a second
	for name, c := range map[string]saleCase{
		"an answer":       {handler: answers(200, "text/plain", "fair"), status: 200, contentType: "text/plain", body: "fair", runs: 1, transfers: 1, isAnswer: true},
		"binary":          {handler: answers(200, "image/png", "\x89PNG\r\n\xff"), status: 200, contentType: "image/png", body: "\x89PNG\r\n\xff", runs: 1, transfers: 1, isAnswer: true},
		"not found":       {handler: answers(404, "text/html", "<p>no"), status: 404, contentType: "text/html", body: "<p>no", runs: 1, transfers: 1, isAnswer: true},
		"another price":   {handler: answers(402, "text/plain", "more"), status: 503, contentType: "text/plain", body: "more", runs: 1, transfers: 1},
		"accepted":        {handler: answers(202, "text/plain", "soon"), options: []x402http.Option{x402http.Owed(202)}, status: 503, contentType: "text/plain", body: "soon", runs: 1, transfers: 1},
		"found elsewhere": {handler: answers(302, "text/html", "there"), status: 302, contentType: "text/html", body: "there", runs: 1, transfers: 1, isAnswer: true},
		"nothing to say":  {handler: answers(204, "text/plain", ""), status: 204, contentType: "text/plain", runs: 1, transfers: 1, isAnswer: true},
		"no words":        {handler: func(http.ResponseWriter, *http.Request) {}, status: 200, contentType: "text/plain; charset=utf-8", runs: 1, transfers: 1, isAnswer: true},
		"the first that is final": {handler: func(w http.ResponseWriter, _ *http.Request) {
			for _, status := range []int{103, 404, 200} {
				w.WriteHeader(status)
			}
		}, status: 404, contentType: "text/plain; charset=utf-8", runs: 1, transfers: 1, isAnswer: true},
		"a query that cannot be read": {handler: answers(200, "text/plain", "fair"), query: "a=%zz", status: 400, contentType: "application/json; charset=utf-8", body: `"code":"invalid_arguments"`},
		"a query that is too long":    {handler: answers(200, "text/plain", "fair"), query: "a=" + strings.Repeat("a", 4<<10), status: 400, contentType: "application/json; charset=utf-8", body: `"code":"invalid_arguments"`},
		"busy":                        {handler: answers(429, "text/plain", "later"), status: 429, contentType: "text/plain", body: "later", runs: 1, transfers: 1},
		"broken":                      {handler: answers(500, "text/plain", "oops"), status: 500, contentType: "text/plain", body: "oops", runs: 1, transfers: 1},
		"owed by option":              {handler: answers(404, "text/plain", "soon"), options: []x402http.Option{x402http.Owed(404)}, status: 404, contentType: "text/plain", body: "soon", runs: 1, transfers: 1},
		"owed, and asks for more":     {handler: answers(402, "text/plain", "more"), options: []x402http.Option{x402http.Owed(402)}, status: 503, contentType: "text/plain", body: "more", runs: 1, transfers: 1},
		"no status":                   {handler: answers(1000, "text/plain", "fair"), status: 500, contentType: "application/json; charset=utf-8", body: `"code":"internal_error"`, runs: 1, transfers: 1},
		"panic":                       {handler: func(http.ResponseWriter, *http.Request) { panic("no") }, status: 500, contentType: "application/json; charset=utf-8", body: `"code":"internal_error"`, runs: 1, transfers: 1},
		"too long":                    {handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(long) }, status: 500, contentType: "application/json; charset=utf-8", body: `"code":"internal_error"`, runs: 1, transfers: 1},
		"refused oddly":               {handler: answers(200, "text/plain", "fair"), options: []x402http.Option{x402http.Check(func(w http.ResponseWriter, _ *http.Request) { x402http.Refuse(w, 200, "fine") })}, status: 500, contentType: "application/json; charset=utf-8", body: `"code":"internal_error"`},
		"refused as broken":           {handler: answers(200, "text/plain", "fair"), options: []x402http.Option{x402http.Check(func(w http.ResponseWriter, _ *http.Request) { x402http.Refuse(w, 500, "oops") })}, status: 500, contentType: "application/json; charset=utf-8", body: `"code":"internal_error"`},
		"refused by check": {handler: answers(200, "text/plain", "fair"), options: []x402http.Option{x402http.Check(func(w http.ResponseWriter, r *http.Request) {
			x402http.Refuse(w, 400+len(r.Header.Values(x402.HeaderSignature)), "no such city")
		})}, status: 400, contentType: "text/plain; charset=utf-8", body: "no such city"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

// saleCase is a handler with its options and its request, and what is expected when it is
// sold.
type saleCase struct {
	handler           http.HandlerFunc
	options           []x402http.Option
	query             string // replaces the usual query b=2&a=1; "" keeps the usual query
	status            int
	contentType, body string
	runs, transfers   int
	isAnswer          bool
}

func (c saleCase) check(t *testing.T) {
	s := openStall(t, c.handler, c.options...)
	if c.query != "" {
		s.url = strings.Replace(s.url, "b=2&a=1", c.query, 1)
	}
	if asked := s.get(""); asked.Status != http.StatusPaymentRequired || asked.Header.Get(x402.HeaderRequired) == "" || s.runs.Load() > 0 {
		t.Fatalf("without a payment: %d %v", asked.Status, asked.Header)
	}
	signature := must(s.client.Sign(t.Context(), s.url))
	res := s.get(signature)
	if res.Status != c.status || res.Header.Get("Content-Type") != c.contentType || !strings.Contains(string(res.Body), c.body) || res.Header.Get("Set-Cookie") != "" {
		t.Errorf("%d %v %q", res.Status, res.Header, res.Body)
	}
	if c.status == http.StatusTooManyRequests && res.Header.Get("Retry-After") != "7" {
		t.Errorf("to be asked again when the handler says: %v", res.Header)
	}
	if paid := res.Header.Get(x402.HeaderResponse) != ""; paid != (c.transfers > 0) {
		t.Errorf("the answer says paid: %v", paid)
	}
	s.url = strings.Replace(s.url, "b=2&a=1", "a=1&b=2", 1) // the order of the parameters does not matter: it is the same purchase
	again := s.get(signature)
	replayed := again.Header.Get(x402.HeaderReplayed) == "true" && bytes.Equal(again.Body, res.Body) && again.Header.Get("Content-Type") == c.contentType
	if again.Status != c.status || replayed != c.isAnswer {
		t.Errorf("again: %d %v %q", again.Status, again.Header, again.Body)
	}
	if found := must(s.seller.Reconcile(t.Context())); found.Owed > 0 != (c.transfers > 0 && !c.isAnswer) {
		t.Errorf("found: %+v", found)
	}
	if int(s.runs.Load()) != c.runs || len(s.books.Transfers()) != c.transfers {
		t.Errorf("%d runs and %d transfers, want %d and %d", s.runs.Load(), len(s.books.Transfers()), c.runs, c.transfers)
	}
}

// TestOtherPurchases checks that a request with another path or another host is another
// purchase, even if the handler sees the same path. The offer names the path in the client's
// request, with the prefix that the handler does not see.
func TestOtherPurchases(t *testing.T) {
	t.Parallel()
	s := openStall(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	signature := must(s.client.Sign(t.Context(), s.url))
	s.get(signature) // the answer to this payment is now owed
	if long := must(s.client.Get(t.Context(), s.url[:len(s.url)-8]+strings.Repeat("o", 4<<10), "")); long.Status != http.StatusBadRequest {
		t.Errorf("too long a path: %d %s", long.Status, long.Body)
	}
	for _, s.url = range []string{strings.Replace(s.url, "/weather", "/dear/weather", 1), strings.Replace(s.url, "127.0.0.1", "localhost", 1)} {
		at, _, _ := strings.Cut(s.url, "?")
		if res := s.get(signature); res.Status != http.StatusPaymentRequired || !strings.Contains(string(res.Body), `"`+at+`"`) || s.runs.Load() != 1 {
			t.Errorf("%s: %d %s, %d runs", s.url, res.Status, res.Body, s.runs.Load())
		}
	}
}

// TestMCP checks that a tool call and a request to the tool's endpoint are the same purchase:
// a payment that was made with the call gets the same answer over HTTP, and the handler runs
// once.
func TestMCP(t *testing.T) {
	t.Parallel()
	s := openStall(t, func(w http.ResponseWriter, r *http.Request) {
		sale, ok := x402.SaleOf(r.Context())
		if !ok || sale.Repeat || sale.Amount != "10000" || sale.Transaction == "" {
			t.Errorf("the handler sees %+v", sale)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"city":"`+r.URL.Query().Get("city")+`"}`)
	})
	at := strings.TrimSuffix(s.url, "/weather/oslo?b=2&a=1")
	if r := must(mcptest.Call(t.Context(), s.client, at+"/mcp", "weather", nil, "", "")); !r.IsError || !strings.Contains(r.Text(), "city is missing") {
		t.Errorf("without its argument: %s", r.Raw)
	}
	args := map[string]any{"city": "oslo"}
	offer := must(must(mcptest.Call(t.Context(), s.client, at+"/mcp", "weather", args, "", "")).Required())
	if offer.Resource.URL != at+"/weather" {
		t.Errorf("offered: %+v", offer.Resource)
	}
	signature := must(s.client.Wallet.Pay(offer, time.Now()))
	called := must(mcptest.Call(t.Context(), s.client, at+"/mcp", "weather", args, signature, ""))
	if called.Text() != `{"city":"oslo"}` || string(called.Structured) != called.Text() || called.Meta.Receipt == nil {
		t.Errorf("called: %s", called.Raw)
	}
	s.url = at + "/weather?city=oslo"
	if got := s.get(signature); string(got.Body) != called.Text() || got.Header.Get(x402.HeaderReplayed) != "true" {
		t.Errorf("over HTTP: %d %s", got.Status, got.Body)
	}
	if s.runs.Load() != 1 || len(s.books.Transfers()) != 1 {
		t.Errorf("%d runs and %d transfers", s.runs.Load(), len(s.books.Transfers()))
	}
}

// TestWrongSettings checks that every wrong setting is an error when the program starts, and
// that the error names the setting. Sell and Handle must panic for a price, a handler or a
// method with which nothing can be sold.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	good := x402http.Config{PayTo: payTo, Facilitator: "http://127.0.0.1:1", Ledger: &ledgertest.Memory{}, NoNode: true, Origin: "https://shop.example"}
	facilitator := func(url string) func(*x402http.Config) { return func(c *x402http.Config) { c.Facilitator = url } }
	origin := func(origin string) func(*x402http.Config) { return func(c *x402http.Config) { c.Origin = origin } }
	for _, c := range []struct {
		setting string
		spoil   func(*x402http.Config)
	}{
		{"PayTo", func(c *x402http.Config) { c.PayTo = "0x12" }},
		{"PayTo", func(c *x402http.Config) { c.PayTo = strings.Replace(payTo, "C8", "C9", 1) }},
		{"PayTo", func(c *x402http.Config) { c.PayTo = x402.USDC().Asset }},
		{"Facilitator", facilitator("https://facilitator.example:x")},
		{"Facilitator", facilitator("http://facilitator.example")},
		{"Facilitator", facilitator("http://127.facilitator.example")},
		{"Ledger", func(c *x402http.Config) { c.Ledger = nil }},
		{"Network", func(c *x402http.Config) { c.Network = "base" }},
		{"Budget", func(c *x402http.Config) { c.Budget = time.Minute }},
		{"Origin", origin("")},
		{"Origin", origin("shop.example")},
		{"Origin", origin("https://Shop.example")},
		{"Origin", func(c *x402http.Config) { c.OtherOrigins = []string{"shop.example"} }},
		{"the origins", func(c *x402http.Config) { c.OtherOrigins = []string{"http://shop.example"} }},
		{"Origin", func(c *x402http.Config) { c.OriginOf = func(*http.Request) string { return c.Origin } }},
		{"Origin", origin("https://")},
		{"Origin", origin("ftp://shop.example")},
		{"Origin", origin("http://[")},
		{"Origin", origin("https://shop.example/")},
		{"Origin", origin("https://shop.example?")},
		{"Origin", origin("https://shop.example#x")},
		{"Origin", origin("https://a:b@shop.example")},
		{"Decimals", func(c *x402http.Config) { c.Decimals = -1 }},
	} {
		bad := good
		c.spoil(&bad)
		if _, err := x402http.New(bad); err == nil || !strings.Contains(err.Error(), "x402http: "+c.setting) {
			t.Errorf("%s of %+v: %v", c.setting, bad, err)
		}
	}
	for _, right := range []func(*x402http.Config){facilitator("http://localhost:1"), origin("https://shop.example"), origin("http://127.0.0.1:8402")} {
		c := good
		right(&c)
		must(x402http.New(c))
	}
	seller := must(x402http.New(good))
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for what, sell := range map[string]func(){
		`"0"`: func() { seller.Sell("0", nothing) }, `"0.0000001"`: func() { seller.Sell("0.0000001", nothing) },
		`"1e3"`: func() { seller.Sell("1e3", nothing) }, `"-1"`: func() { seller.Sell("-1", nothing) }, `""`: func() { seller.Sell("", nothing) },
		`".5"`: func() { seller.Sell(".5", nothing) }, `"1."`: func() { seller.Sell("1.", nothing) },
		"too large": func() { seller.Sell("1"+strings.Repeat("0", 33), nothing) },
		"nil":       func() { seller.Sell("1", nil) }, `"POST /a"`: func() { seller.Handle(http.NewServeMux(), "POST /a", "1", nothing) },
	} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), what) {
					t.Errorf("%s: %v", what, p)
				}
			}()
			sell()
		}()
	}
}

// TestPerMinute checks that a client can send the configured number of requests a minute and
// no more. If the setting is negative, the number is not limited.
func TestPerMinute(t *testing.T) {
	t.Parallel()
	for perMinute, want := range map[int]int{1: http.StatusTooManyRequests, 2: http.StatusPaymentRequired, -1: http.StatusPaymentRequired} {
		sold := must(x402http.New(x402http.Config{
			PayTo: payTo, Facilitator: "http://127.0.0.1:1", Ledger: &ledgertest.Memory{}, Origin: "https://shop.example", NoNode: true, PerMinute: perMinute,
			Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(1_800_000_000, 0) },
		})).Sell("0.01", http.NotFoundHandler())
		var last *httptest.ResponseRecorder
		for range 2 {
			last = httptest.NewRecorder()
			sold.ServeHTTP(last, httptest.NewRequest(http.MethodGet, "/", nil))
		}
		if last.Code != want {
			t.Errorf("%d a minute: the second is answered %d, want %d", perMinute, last.Code, want)
		}
	}
}
