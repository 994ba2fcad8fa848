package browser

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	dnsPath = "/v1/tools/dns"
	wwwPath = dnsPath + "?domain=www.example.com&type=A"
)

// scenario is one visit to a page, and what it may cost.
type scenario struct {
	name   string
	script string // in the Node files beside this one
	path   string
	args   map[string]any
	before func(w *world)
	steps  []step
	// signatures are requests that paid, settles what the facilitator was
	// asked for, transfers what moved.
	signatures, settles, transfers int
	several                        bool // the signatures differ
	// questions are the purchases that were asked for, each by a key of its own;
	// 0 is one.
	questions int
	after     func(t *testing.T, w *world, o outcome)
}

// paysOnce is a scenario of n requests with the same signature and one payment.
func paysOnce(name, script, path string, n int) scenario {
	return scenario{name: name, script: script, path: path, signatures: n, settles: 1, transfers: 1}
}

func (s scenario) with(args map[string]any, steps ...step) scenario {
	s.args, s.steps = args, steps
	return s
}

func TestPages(t *testing.T)   { playAll(t, pageScenarios()) }
func TestWallets(t *testing.T) { playAll(t, walletScenarios()) }

// playAll plays scenarios with a browser and a service of their own, beside the
// other tests, which have theirs. While screenshots are taken it goes first:
// TestScreenshots reads them.
func playAll(t *testing.T, list []scenario) {
	if !*updateScreenshots {
		t.Parallel()
	}
	d := newDriver(t)
	w := newWorld(t)
	for _, s := range list {
		t.Run(s.name, func(t *testing.T) { play(t, d, w, s) })
	}
}

func play(t *testing.T, d *driver, w *world, s scenario) {
	w.proxy.play(s.steps...)
	w.books.plan()
	if s.before != nil {
		s.before(w)
	}
	o := d.run(t, w.origin, s.script, s.path, s.args)
	signatures, urls, sent, _ := w.proxy.payments()
	if len(signatures) != s.signatures {
		t.Errorf("%d requests with a signature, want %d", len(signatures), s.signatures)
	}
	for i := range signatures {
		if !s.several && signatures[i] != signatures[0] {
			t.Errorf("request %d has another signature", i)
		}
		if urls[i] != urls[0] {
			t.Errorf("request %d goes to %s, the first to %s", i, urls[i], urls[0])
		}
		if accept := sent[i].Get("Accept"); accept != "application/json" {
			t.Errorf("request %d accepts %q", i, accept)
		}
		if cookie := sent[i].Get("Cookie"); cookie != "" {
			t.Errorf("request %d carries the cookie %q", i, cookie)
		}
	}
	checkKeys(t, signatures, sent, max(s.questions, 1))
	if o.Payer != "" {
		if settles, transfers := w.books.of(o.Payer); settles != s.settles || transfers != s.transfers {
			t.Errorf("%d settlements and %d transfers, want %d and %d", settles, transfers, s.settles, s.transfers)
		}
	} else if s.transfers > 0 {
		t.Error("nobody paid")
	}
	if s.after != nil {
		s.after(t, w, o)
	}
}

// checkKeys: every payment names its purchase, always by the same key, and there
// are as many keys as questions were asked.
func checkKeys(t *testing.T, signatures []string, sent []http.Header, questions int) {
	t.Helper()
	bySignature, keys := map[string]string{}, map[string]bool{}
	for i, header := range sent {
		key := header.Get(x402.HeaderKey)
		keys[key] = true
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(key) {
			t.Errorf("request %d has the key %q", i, key)
		}
		if first, seen := bySignature[signatures[i]]; seen && first != key {
			t.Errorf("request %d sends the same signature with the key %q and %q", i, first, key)
		}
		bySignature[signatures[i]] = key
	}
	if len(sent) > 0 && len(keys) != questions {
		t.Errorf("%d keys, want %d: %v", len(keys), questions, keys)
	}
}

func walletScenarios() []scenario {
	whole := paysOnce("pay, copy, download, reload and replay", "payAndReplay", wwwPath+"&trace=kept%20as%20it%20is", 2)
	whole.after = func(t *testing.T, w *world, o outcome) {
		if !strings.Contains(string(o.Answer), `"192.0.2.10"`) {
			t.Errorf("the answer is %s", o.Answer)
		}
		signatures, urls, _, got := w.proxy.payments()
		if urls[0] != whole.path {
			t.Errorf("asked for %s, want %s", urls[0], whole.path)
		}
		if len(got) != 2 || got[0].Get(x402.HeaderReplayed) != "" || got[1].Get(x402.HeaderReplayed) != "true" {
			t.Errorf("answers: %v", got)
		}
		checkEcho(t, w, signatures[0])
	}
	anew := scenario{name: "paid for, and for a new answer", script: "payTwice", path: wwwPath, signatures: 3, settles: 2, transfers: 2, several: true, questions: 2}
	return []scenario{
		whole, anew,
		paysOnce("several wallets", "severalWallets", wwwPath, 1),
		paysOnce("window.ethereum alone", "oldWallet", wwwPath, 1),
		{name: "no wallet, then a late one", script: "noWallet", path: wwwPath},
		{name: "connection refused", script: "connectRefused", path: wwwPath},
		paysOnce("wrong chain, switch refused, then added", "wrongChain", wwwPath, 1),
		paysOnce("signature refused", "signatureRefused", wwwPath, 1),
		paysOnce("balance too low, then unknown", "balance", wwwPath, 1),
		{name: "account and chain change in the wallet", script: "changesInTheWallet", path: wwwPath},
		{name: "an authorization that became old", script: "oldAuthorization", path: wwwPath},
	}
}

// checkEcho compares what was sent with what the service offers: resource,
// accepted and extensions go back as they came. The retry token is of the page's
// own offer.
func checkEcho(t *testing.T, w *world, header string) {
	t.Helper()
	c := &x402test.Client{HTTP: http.DefaultClient}
	offered, err := c.Challenge(t.Context(), w.origin+wwwPath)
	if err != nil {
		t.Fatal(err)
	}
	sent := decoded(t, header)
	extensions, ok := sent["extensions"].(map[string]any)
	if !ok || !regexp.MustCompile(`"info":\{"token":"[A-Za-z0-9_-]{22}"\}`).MatchString(plain(t, extensions[x402.ExtensionToken])) {
		t.Errorf("the extensions were sent as %v, without the retry token", sent["extensions"])
	}
	if plain(t, extensions[x402.ExtensionToken]) == plain(t, offered.Extensions[x402.ExtensionToken]) {
		t.Error("two challenges have the same retry token")
	}
	delete(extensions, x402.ExtensionToken)
	delete(offered.Extensions, x402.ExtensionToken)
	for name, want := range map[string]any{"resource": offered.Resource, "accepted": offered.Accepts[0], "extensions": offered.Extensions} {
		if got, want := plain(t, sent[name]), plain(t, want); got != want {
			t.Errorf("%s was sent as\n%s\nand offered as\n%s", name, got, want)
		}
	}
}

func pageScenarios() []scenario {
	var paths []string
	for _, op := range catalog.All() {
		paths = append(paths, strings.TrimPrefix(op.ExampleURL("http://x"), "http://x"))
	}
	ping := paysOnce("ping takes no domain", "payHere", "/v1/tools/ping", 1)
	ping.after = contains(`"ok":true`)
	hostile := paysOnce("hostile values in the answer", "hostileAnswer", dnsPath+"?domain=txt.example.com&type=TXT", 1)
	bare := paysOnce("the bare address and its form", "bare", dnsPath, 1)
	bare.after = contains(`"2001:db8::1"`)
	return []scenario{
		{name: "hostile links", script: "hostile", path: dnsPath, args: map[string]any{"values": hostileValues()}},
		paysOnce("a wallet with a hostile name", "hostilePaid", wwwPath, 1),
		hostile,
		{name: "scrolls to the button", script: "scrollsToTheButton", path: wwwPath},
		{name: "an internationalised name", script: "internationalised", path: dnsPath},
		{name: "names that are refused", script: "refusedNames", path: dnsPath, args: map[string]any{
			"names": []string{"localhost", "127.0.0.1", "printer.local", "db.internal", "[::1]", "0x7f.1", "example.com:8080", strings.Repeat("a", 300)},
		}},
		{name: "policy", script: "policy", path: wwwPath},
		paysOnce("with the keyboard alone", "keyboard", dnsPath, 1),
		bare,
		{name: "without script", script: "withoutScript", path: wwwPath},
		{name: "every operation", script: "everyPage", args: map[string]any{"paths": paths}},
		ping,
		{name: "documentation", script: "documentation", path: "/docs"},
		{name: "documentation, links within it", script: "docsAnchors", path: "/docs"},
		{name: "documentation, contents", script: "docsContents", path: "/docs"},
		{name: "documentation, tabs", script: "docsTabs", path: "/docs"},
		{name: "documentation, room", script: "docsRoom", path: "/docs"},
		{name: "documentation, without script", script: "docsWithoutScript", path: "/docs"},
		{name: "an unknown path", script: "nothingHere", path: "/v1/nothing?here=%3Cscript%3E"},
	}
}

func contains(text string) func(*testing.T, *world, outcome) {
	return func(t *testing.T, _ *world, o outcome) {
		if !strings.Contains(string(o.Answer), text) {
			t.Errorf("the answer is %s, without %s", o.Answer, text)
		}
	}
}

// hostileValues are what a link can carry; none of them is a name.
func hostileValues() []string {
	return []string{
		`<script>window.owned=1</script>`, `"><img src=x onerror=owned=1>`, `'); owned=1; ('`, `</code></script><script>owned=1</script>`,
		"`${owned=1}`", `javascript:owned=1`, `{{js}}`, `&lt;b&gt;`, `a"b'c<d>e&f`, `--><svg onload=owned=1>`,
		"\u202egro.elpmaxe", "\u2066x\u2069.example", "a\nb\tc", strings.Repeat("a", 2000), strings.Repeat("\u05d0", 120),
	}
}
