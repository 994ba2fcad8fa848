package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

const playOrigin = "http://127.0.0.1:8402"

// playPage returns a play wallet, and a handler that serves the wallet together with a
// service.
func playPage(t *testing.T) (*playWallet, http.Handler) {
	t.Helper()
	wallet := testbed.Must(newPlayWallet(testbed.LocalTerms(t), time.Now))
	service := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	return wallet, testbed.Must(wallet.addToService(service, playOrigin))
}

// payment returns an authorization that the wallet must sign, in the form in which a page sends
// it to the wallet.
func (p *playWallet) payment(now time.Time) map[string]any {
	return map[string]any{
		"from": p.wallet.Address().Checksum(), "to": p.terms.PayTo, "value": catalog.DNS().Amount, "validAfter": "0",
		"validBefore": strconv.FormatInt(now.Unix()+300, 10), "nonce": "0x" + strings.Repeat("5a", 32),
	}
}

// postJSON sends a body to the wallet as a page of the service does. The given function, if it
// is not nil, changes the request first.
func postJSON(h http.Handler, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, playOrigin+playWalletPath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", playOrigin)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestPlayWalletSignsForOurPages checks that the wallet signs only for pages of this service,
// according to the origin that a browser sends. The wallet must also refuse every request that
// is not a POST of JSON.
func TestPlayWalletSignsForOurPages(t *testing.T) {
	t.Parallel()
	wallet, h := playPage(t)
	body := string(testbed.Must(json.Marshal(wallet.payment(time.Now()))))
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"our page":                {nil, http.StatusOK},
		"our page, of an old age": {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, http.StatusOK},
		"with a charset":          {set("Content-Type", "application/json; charset=utf-8"), http.StatusOK},
		"another path":            {func(r *http.Request) { r.URL.Path = "/docs" }, http.StatusTeapot},
		"another site": {func(r *http.Request) {
			r.Header.Set("Origin", "https://evil.example.com")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}, http.StatusForbidden},
		"another site, long ago": {func(r *http.Request) {
			r.Header.Set("Origin", "https://evil.example.com")
			r.Header.Del("Sec-Fetch-Site")
		}, http.StatusForbidden},
		"another port": {func(r *http.Request) {
			r.Header.Set("Origin", "http://127.0.0.1:9")
			r.Header.Set("Sec-Fetch-Site", "same-site")
		}, http.StatusForbidden},
		"a sandbox":   {func(r *http.Request) { r.Header.Set("Origin", "null"); r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"no page":     {func(r *http.Request) { r.Header.Del("Origin") }, http.StatusForbidden},
		"a form":      {set("Content-Type", "application/x-www-form-urlencoded"), http.StatusUnsupportedMediaType},
		"text":        {set("Content-Type", "text/plain"), http.StatusUnsupportedMediaType},
		"no type":     {func(r *http.Request) { r.Header.Del("Content-Type") }, http.StatusUnsupportedMediaType},
		"GET":         {func(r *http.Request) { r.Method = http.MethodGet }, http.StatusMethodNotAllowed},
		"a preflight": {func(r *http.Request) { r.Method = http.MethodOptions }, http.StatusMethodNotAllowed},
	} {
		w := postJSON(h, body, c.change)
		if w.Code != c.status || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v %s, want %d", name, w.Code, w.Header(), w.Body, c.status)
		}
	}
}

// TestPlayWalletSignsOurOffers checks that the wallet signs only payments for offers of this
// service, in the token and network of play money. It must refuse every other amount, payer,
// payee and period, and every malformed request.
func TestPlayWalletSignsOurOffers(t *testing.T) {
	t.Parallel()
	wallet, h := playPage(t)
	now := time.Now()
	for _, op := range catalog.All() {
		payment := wallet.payment(now)
		payment["value"] = op.Amount
		w := postJSON(h, string(testbed.Must(json.Marshal(payment))), nil)
		var signed struct{ Signature string }
		if err := json.Unmarshal(w.Body.Bytes(), &signed); w.Code != http.StatusOK || err != nil {
			t.Errorf("%s: %d %s", op.Slug, w.Code, w.Body)
		}
		var authorization x402.Authorization
		testbed.Check(json.Unmarshal(testbed.Must(json.Marshal(payment)), &authorization))
		header := testbed.Must(x402.EncodeHeader(x402.Payload{
			X402Version: x402.Version, Accepted: json.RawMessage("{}"),
			Payload: x402.ExactPayload{Signature: signed.Signature, Authorization: authorization},
		}))
		p := testbed.Must(x402.DecodePayment(header))
		if err := p.Check(p.Digest(testbed.Must(wallet.terms.TokenDomain()))); err != nil {
			t.Errorf("%s: the signature does not hold: %v", op.Slug, err)
		}
	}
	at := func(ahead time.Duration) string { return strconv.FormatInt(now.Add(ahead).Unix(), 10) }
	for name, c := range map[string]struct {
		change map[string]any
		says   string
	}{
		"another amount":      {map[string]any{"value": "5001"}, "pays the prices of this service"},
		"another form of it":  {map[string]any{"value": "05000"}, "pays the prices of this service"},
		"another payee":       {map[string]any{"to": wallet.wallet.Address().Checksum()}, "pays from its account to that of this service"},
		"another payer":       {map[string]any{"from": wallet.terms.PayTo}, "pays from its account"},
		"later":               {map[string]any{"validAfter": "1"}, "at once"},
		"over":                {map[string]any{"validBefore": at(-time.Minute)}, "ends within 24h0m0s from now"},
		"for too long":        {map[string]any{"validBefore": at(x402.MaxWindow + time.Minute)}, "ends within"},
		"for ever":            {map[string]any{"validBefore": strings.Repeat("9", 30)}, "ends within"},
		"no nonce":            {map[string]any{"nonce": "0x"}, "nonce"},
		"a member more":       {map[string]any{"asset": wallet.terms.PayTo}, "which this is not"},
		"a number":            {map[string]any{"value": 5000}, "which this is not"},
		"more than it reads":  {map[string]any{"nonce": strings.Repeat("0", maxAuthorization)}, "which this is not"},
		"another token in it": {map[string]any{"domain": map[string]any{"chainId": 1}}, "which this is not"},
	} {
		payment := wallet.payment(now)
		maps.Copy(payment, c.change)
		w := postJSON(h, string(testbed.Must(json.Marshal(payment))), nil)
		if w.Code == http.StatusOK || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s, want %q", name, w.Code, w.Body, c.says)
		}
	}
	for _, body := range []string{"", "null", "[]", "{}", "{} {}", `"0x"`} {
		if w := postJSON(h, body, nil); w.Code == http.StatusOK {
			t.Errorf("%q is signed: %s", body, w.Body)
		}
	}
}

// call makes one request to a running service, as a browser does.
func call(t *testing.T, method, url, body string, header map[string]string) (status int, reply string) {
	t.Helper()
	request := testbed.Must(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))
	for name, value := range header {
		request.Header.Set(name, value)
	}
	res := testbed.Must(http.DefaultClient.Do(request))
	defer res.Body.Close()
	return res.StatusCode, string(testbed.Must(io.ReadAll(res.Body)))
}

// pagePing returns the HTML page of the operation ping. It also returns the account of the
// wallet that the page announces, or "" if there is none.
func pagePing(t *testing.T, origin string) (page, account string) {
	t.Helper()
	_, page = call(t, http.MethodGet, origin+catalog.Ping().Path, "", map[string]string{"Accept": "text/html"})
	m := regexp.MustCompile(`eth_requestAccounts: \["(0x[0-9a-fA-F]{40})"\]`).FindStringSubmatch(page)
	if m != nil {
		account = m[1]
	}
	return page, account
}

// signAt asks a running service to sign a payment, in the same way as the service's page.
func signAt(t *testing.T, origin string, payment any) (status int, reply string) {
	t.Helper()
	body := string(testbed.Must(json.Marshal(payment)))
	return call(t, http.MethodPost, origin+playWalletPath, body, map[string]string{"Content-Type": "application/json", "Origin": origin})
}

// TestRunWithAPlayWallet checks that a service with the defaults of "make run" has a play
// wallet. The wallet must be able to pay, and must have a new key at each start.
func TestRunWithAPlayWallet(t *testing.T) {
	t.Parallel()
	accounts := map[string]bool{}
	for range 2 {
		r := start(t, map[string]string{"LEDGER_FILE": filepath.Join(t.TempDir(), "ledger.db")})
		origin := r.welcomeLine(t, "is ready on")
		ping := origin + catalog.Ping().Path
		offer := testbed.Must(visitor().Challenge(t.Context(), ping))
		draft := testbed.Must(testbed.NewClient(t, nil).Wallet.Draft(offer, time.Now()))
		authorization := &draft.Payload.Payload.Authorization
		_, authorization.From = pagePing(t, origin)
		accounts[authorization.From] = true
		status, reply := signAt(t, origin, authorization)
		testbed.Check(json.Unmarshal([]byte(reply), &draft.Payload.Payload))
		paid, err := visitor().Get(t.Context(), ping, testbed.Must(x402.EncodeHeader(draft.Payload)))
		if status != http.StatusOK || err != nil || paid.Status != http.StatusOK {
			t.Errorf("signed: %d %s; paid: %d %s, %v", status, reply, paid.Status, paid.Body, err)
		}
	}
	if len(accounts) != 2 || accounts[""] || accounts[testbed.LocalTerms(t).PayTo] {
		t.Errorf("the play wallets of two starts are %v", accounts)
	}
}

// TestRunWithoutAPlayWallet checks services that do not take play money. They must sign nothing
// for visitors, and their pages must not offer to pay with play money.
func TestRunWithoutAPlayWallet(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"a facilitator":      {"FACILITATOR_URL": "http://127.0.0.1:1"},
		"a test network":     {"NETWORK": x402.BaseSepolia},
		"selling is no":      {"SELLING": "no"},
		"a real facilitator": {"FACILITATOR_URL": "https://facilitator.example", "PAY_TO": "0x00000000000000000000000000000000000000aa"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env["LEDGER_FILE"] = filepath.Join(t.TempDir(), "ledger.db")
			origin := start(t, env).welcomeLine(t, "is ready on")
			wallet := testbed.Must(newPlayWallet(testbed.LocalTerms(t), time.Now))
			status, reply := signAt(t, origin, wallet.payment(time.Now()))
			if status != http.StatusNotFound || !strings.Contains(reply, "unknown_path") {
				t.Errorf("%d %s", status, reply)
			}
			page, account := pagePing(t, origin)
			if account != "" || strings.Contains(page, "play money") || strings.Contains(page, playWalletPath) {
				t.Errorf("the page: %s", page)
			}
		})
	}
}
