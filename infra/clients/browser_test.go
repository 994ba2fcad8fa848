package clients

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// TestBrowser visits the paywall and the documentation of a service in Chromium, with a wallet
// that really signs. A gateway between the browser and the service can lose, delay or replace
// answers. Each visit must lead to the expected payments, and show the expected answer.
func TestBrowser(t *testing.T) {
	t.Parallel()
	t.Run("visits", func(t *testing.T) {
		for name, list := range map[string]func(*testing.T) []visit{
			"pages": pageVisits, "wallets": walletVisits, "faults": faultVisits, "losses": lossVisits,
			"money": moneyVisits, "doubts": doubtVisits, "tabs": tabVisits, "receipts": receiptVisits,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				browsers <- struct{}{}
				defer func() { <-browsers }()
				d, s := newDriver(t), newScene(t)
				defer d.end(t)
				for _, v := range list(t) {
					t.Run(v.name, func(t *testing.T) { v.play(t, d, s) })
				}
			})
		}
	})
	t.Run("play money", playMoney)
	t.Run("screenshots", checkScreenshots)
}

// browsers limits the number of browsers that run at the same time.
var browsers = make(chan struct{}, 2)

const (
	dnsPath = "/v1/tools/dns"
	wwwPath = dnsPath + "?domain=www.example.com&type=A"
)

// scene is a service whose pages the browser visits.
type scene struct {
	*gateway // has the address at which the browser visits the service
	books    *testbed.Facilitator
	healed   atomic.Bool // whether the resolvers have stopped refusing names
}

// browserZone has the resolver's records. The resolver refuses names below refused.example.com
// until the scene's field healed is true. Other names do not exist.
const browserZone = `
$ORIGIN example.com.
$TTL 300
com. NS   a.gtld-servers.net.
@    SOA  ns1.example.com. hostmaster.example.com. 2026110501 7200 900 1209600 300
www  A    192.0.2.10
www  A    192.0.2.11
www  AAAA 2001:db8::1
txt  TXT  "<script>window.owned = 1</script> \"quoted\" <img src=x onerror=owned=1> \226\128\174reversed\226\128\172"
healed.refused A 192.0.2.77
`

func newScene(t *testing.T) *scene {
	s := &scene{}
	w := newWorld(t, resolverOf(t, browserZone, func(w dns.ResponseWriter, q *dns.Msg) bool {
		name, _, _ := testbed.Question(q)
		if !strings.HasSuffix(name, ".refused.example.com.") || s.healed.Load() {
			return false
		}
		m := testbed.Reply(q)
		m.Rcode = dns.RcodeRefused
		testbed.Send(w, q, m)
		return true
	}))
	s.gateway, s.books = newGateway(t, w.start(t).url), w.books
	return s
}

// args are the arguments of a script.
type args = map[string]any

// visit is a visit to a page, with what the test expects of it.
type visit struct {
	name    string
	script  string // the name of a script in testdata/browser
	path    string
	args    args
	prepare func(*scene)
	plan    []step
	// The visit must lead to this many requests with a signature, this many settlement
	// requests to the facilitator, and this many transfers of money.
	signatures, settlements, transfers int
	signaturesMayDiffer                bool // whether the signatures may differ; otherwise all must be the same
	// questions is the number of purchases, each of which must have a different key. 0 means
	// 1.
	questions  int
	answer     string // a text in the JSON that the page must show
	checkAfter func(t *testing.T, s *scene)
}

// payingVisit returns a visit that must make one payment: n requests with the same signature.
func payingVisit(name, script, path string, n int) visit {
	return visit{name: name, script: script, path: path, signatures: n, settlements: 1, transfers: 1}
}

func (v visit) withPlan(a args, plan ...step) visit {
	v.args, v.plan = a, plan
	return v
}

func (v visit) play(t *testing.T, d driver, s *scene) {
	s.gateway.setPlan(v.plan...)
	s.books.Plan("")
	if v.prepare != nil {
		v.prepare(s)
	}
	payer, shown := d.run(t, s.url, v)
	sent := s.paidRequests()
	if len(sent) != v.signatures {
		t.Errorf("%d requests with a signature, want %d", len(sent), v.signatures)
	}
	v.checkRequests(t, sent)
	if settles, transfers := s.books.Asked(payer), len(s.books.Moved(payer)); settles != v.settlements || transfers != v.transfers {
		t.Errorf("%d settlements and %d transfers, want %d and %d", settles, transfers, v.settlements, v.transfers)
	}
	if !strings.Contains(shown, v.answer) {
		t.Errorf("the answer is %s, without %s", shown, v.answer)
	}
	if v.checkAfter != nil {
		v.checkAfter(t, s)
	}
}

// checkRequests checks that all requests went to the same URL without a cookie, and that each
// purchase had one key.
func (v visit) checkRequests(t *testing.T, sent []paidRequest) {
	bySignature, keys := map[string]string{}, map[string]bool{}
	for i, r := range sent {
		if !v.signaturesMayDiffer && r.signature != sent[0].signature {
			t.Errorf("request %d has another signature", i)
		}
		if r.uri != sent[0].uri || r.header.Get("Accept") != "application/json" || r.header.Get("Cookie") != "" {
			t.Errorf("request %d: %s %v; the first went to %s", i, r.uri, r.header, sent[0].uri)
		}
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(r.key) {
			t.Errorf("request %d has the key %q", i, r.key)
		}
		if first, seen := bySignature[r.signature]; seen && first != r.key {
			t.Errorf("request %d sends the same signature with the key %q and %q", i, first, r.key)
		}
		bySignature[r.signature], keys[r.key] = r.key, true
	}
	if len(sent) > 0 && len(keys) != max(v.questions, 1) {
		t.Errorf("keys %v, want %d", keys, max(v.questions, 1))
	}
}

// pictures is a folder in the root of the module. With -update-screenshots, the tests write a
// picture of every state of the pages to it.
const pictures = "build/screenshots"

// driver is the Node process that drives one Chromium.
type driver struct{ *dialogue }

func newDriver(t *testing.T) driver {
	args := []string{"testdata/browser/driver.mjs", testbed.Find(t, "a browser", "chromium", "chromium-browser", "google-chrome")}
	if *updateScreenshots {
		args = append(args, filepath.Join(testbed.Root(), pictures))
	}
	d := driver{begin(t, exec.CommandContext(t.Context(), testbed.Node(t, "."), args...))}
	var browser struct{ Version string }
	d.next(t, &browser)
	t.Logf("Chromium: %s", browser.Version)
	return d
}

// run makes a visit. It returns the wallet that paid, and the JSON that the page shows.
func (d driver) run(t *testing.T, origin string, v visit) (payer, answer string) {
	d.say(t, args{"name": v.script, "origin": origin, "path": v.path, "args": v.args})
	var o struct {
		Failed, Payer string
		Answer        json.RawMessage
	}
	if d.next(t, &o); o.Failed != "" {
		t.Fatal(strings.TrimSpace(o.Failed))
	}
	return o.Payer, string(o.Answer)
}

// maxScreenshots limits the total size of the committed screenshots, in bytes.
const maxScreenshots = 512 << 10

// checkScreenshots checks that the committed screenshots are exactly those that README.md shows,
// and that they are readable and small.
func checkScreenshots(t *testing.T) {
	readme := string(testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "README.md"))))
	shown := []string{"screenshots/answer-dark.png", "screenshots/answer-light.png", "screenshots/docs-dark.png", "screenshots/docs-light.png"}
	total := 0
	for _, path := range shown {
		if *updateScreenshots {
			testbed.Check(os.Rename(filepath.Join(testbed.Root(), pictures, filepath.Base(path)), path))
		}
		picture := testbed.Must(os.ReadFile(path))
		c, err := png.DecodeConfig(bytes.NewReader(picture))
		if err != nil || c.Width < 200 || c.Height < 200 || !strings.Contains(readme, "infra/clients/"+path) {
			t.Errorf("%s: %d by %d pixels, or README.md does not show it: %v", path, c.Width, c.Height, err)
		}
		total += len(picture)
	}
	if files := testbed.Must(filepath.Glob("screenshots/*")); !slices.Equal(files, shown) || total > maxScreenshots {
		t.Errorf("%v of %d bytes, want %v of at most %d", files, total, shown, maxScreenshots)
	}
}
