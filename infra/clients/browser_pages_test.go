package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func walletVisits(*testing.T) []visit {
	whole := pays("pay, copy, download, reload and replay", "payAndReplay", wwwPath+"&trace=kept%20as%20it%20is", 2)
	whole.answer = `"192.0.2.10"`
	whole.after = func(t *testing.T, s *scene) {
		sent := s.paid()
		if sent[0].uri != whole.path {
			t.Errorf("asked for %s, want %s", sent[0].uri, whole.path)
		}
		if len(s.got) != 2 || s.got[0].Get(x402.HeaderReplayed) != "" || s.got[1].Get(x402.HeaderReplayed) != "true" {
			t.Errorf("answers: %v", s.got)
		}
		checkEcho(t, s, sent[0].signature)
	}
	anew := visit{name: "paid for, and for a new answer", script: "payTwice", path: wwwPath, signatures: 3, settles: 2, transfers: 2, several: true, questions: 2}
	return []visit{
		whole, anew,
		pays("several wallets", "severalWallets", wwwPath, 1),
		pays("window.ethereum alone", "oldWallet", wwwPath, 1),
		{name: "no wallet, then a late one", script: "noWallet", path: wwwPath},
		{name: "connection refused", script: "connectRefused", path: wwwPath},
		pays("wrong chain, switch refused, then added", "wrongChain", wwwPath, 1),
		pays("signature refused", "signatureRefused", wwwPath, 1),
		pays("balance too low, then unknown", "balance", wwwPath, 1),
		{name: "account and chain change in the wallet", script: "changesInTheWallet", path: wwwPath},
		{name: "an authorization that became old", script: "oldAuthorization", path: wwwPath},
	}
}

// checkEcho compares what was sent with what the service offers: resource, accepted and
// extensions go back as they came. The retry token is of the page's own offer.
func checkEcho(t *testing.T, s *scene, header string) {
	t.Helper()
	type echo struct {
		Resource, Accepted any
		Extensions         map[string]any
	}
	c := &x402test.Client{HTTP: http.DefaultClient}
	offered, err := c.Challenge(t.Context(), s.url+wwwPath)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{"resource": offered.Resource, "accepted": offered.Accepts[0], "extensions": offered.Extensions})
	if err != nil {
		t.Fatal(err)
	}
	sent, want := decoded[echo](t, []byte(unwrapped(t, header))), decoded[echo](t, raw)
	token, other := fmt.Sprint(sent.Extensions[x402.ExtensionToken]), fmt.Sprint(want.Extensions[x402.ExtensionToken])
	if !regexp.MustCompile(`info:map\[token:[A-Za-z0-9_-]{22}\]`).MatchString(token) || token == other {
		t.Errorf("the retry token was sent as %s, and the next offer's is %s", token, other)
	}
	delete(sent.Extensions, x402.ExtensionToken)
	delete(want.Extensions, x402.ExtensionToken)
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("offered (-) and sent (+): %s", diff)
	}
}

func pageVisits(*testing.T) []visit {
	var paths []string
	for _, op := range catalog.All() {
		paths = append(paths, strings.TrimPrefix(op.ExampleURL("http://x"), "http://x"))
	}
	ping := pays("ping takes no domain", "payHere", "/v1/tools/ping", 1)
	ping.answer = `"ok":true`
	hostile := pays("hostile values in the answer", "hostileAnswer", dnsPath+"?domain=txt.example.com&type=TXT", 1)
	bare := pays("the bare address and its form", "bare", dnsPath, 1)
	bare.answer = `"2001:db8::1"`
	return []visit{
		{name: "hostile links", script: "hostile", path: dnsPath, args: map[string]any{"values": hostileValues()}},
		pays("a wallet with a hostile name", "hostilePaid", wwwPath, 1),
		hostile,
		{name: "scrolls to the button", script: "scrollsToTheButton", path: wwwPath},
		{name: "an internationalised name", script: "internationalised", path: dnsPath},
		{name: "names that are refused", script: "refusedNames", path: dnsPath, args: map[string]any{
			"names": []string{"localhost", "127.0.0.1", "printer.local", "db.internal", "[::1]", "0x7f.1", "example.com:8080", strings.Repeat("a", 300)},
		}},
		{name: "policy", script: "policy", path: wwwPath},
		pays("with the keyboard alone", "keyboard", dnsPath, 1),
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

// hostileValues are what a link can carry; none of them is a name.
func hostileValues() []string {
	return []string{
		`<script>window.owned=1</script>`, `"><img src=x onerror=owned=1>`, `'); owned=1; ('`, `</code></script><script>owned=1</script>`,
		"`${owned=1}`", `javascript:owned=1`, `{{js}}`, `&lt;b&gt;`, `a"b'c<d>e&f`, `--><svg onload=owned=1>`,
		"\u202egro.elpmaxe", "\u2066x\u2069.example", "a\nb\tc", strings.Repeat("a", 2000), strings.Repeat("\u05d0", 120),
	}
}
