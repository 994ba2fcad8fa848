package clients

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func curlWorkshop(t *testing.T) workshop {
	testbed.Find(t, "curl", "curl")
	return newWorkshop(t)
}

// runCurl runs a curl command of the documentation page, and returns the response that curl -i
// prints. curl must print exactly one response.
func runCurl(t *testing.T, w workshop, line string, env ...string) (*http.Response, []byte) {
	printed := programs.Run(t, w.shell(t, line, env...))
	in := bufio.NewReader(bytes.NewReader(printed))
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("%v in %s", err, printed)
	}
	defer res.Body.Close()
	body := testbed.Must(io.ReadAll(res.Body))
	if rest, _ := io.ReadAll(in); len(bytes.TrimSpace(rest)) > 0 {
		t.Fatalf("more than an answer: %s", printed)
	}
	return res, body
}

// TestCurl runs two curl commands of the documentation page. The first must get the offer, and
// must move no money. The second sends a wallet's signature. It must get the answer, although
// the facilitator loses the result of the first settlement. When the second command runs again,
// it must get the same answer, marked as replayed. Neither run gets an idempotency key, so both
// derive the same key from the signature.
func TestCurl(t *testing.T) {
	t.Parallel()
	w, s := curlWorkshop(t), start(t, x402test.FailAfter)
	shown := readPage(t, s)
	res, body := runCurl(t, w, shown.programs["curl"])
	if _, err := (x402test.Reply{Header: res.Header}).Required(); err != nil || res.StatusCode != http.StatusPaymentRequired || len(s.books.Transfers()) != 0 {
		t.Errorf("%s, %v: %s; moved %v", res.Status, err, body, s.books.Transfers())
	}
	signature := sign(t, s.url)
	for _, replayed := range []string{"", "true"} {
		res, body := runCurl(t, w, shown.programs["signed"], "SIGNATURE="+signature)
		if res.StatusCode != http.StatusOK || res.Header.Get(x402.HeaderResponse) == "" || res.Header.Get(x402.HeaderReplayed) != replayed {
			t.Fatalf("%s %v", res.Status, res.Header)
		}
		outcome{out: string(body)}.checkPaid(t, s)
		if n, _ := s.books.Settles(); n != 2 {
			t.Errorf("%d settlements were asked for, want 2: the first one's news is lost", n)
		}
	}
}

// decodeHeader returns the JSON in a header.
func decodeHeader(header string) string {
	return string(testbed.Must(base64.StdEncoding.DecodeString(header)))
}

// sign returns the header of a payment for the example call, signed with the key of a new
// wallet.
func sign(t *testing.T, origin string) string {
	client := testbed.NewClient(t, &http.Client{Timeout: testbed.Patience})
	return testbed.Must(client.Sign(t.Context(), catalog.DNS().ExampleURL(origin)))
}

// gatewayError returns a step that drops the service's answer, and answers with an error of
// the kind that API Gateway itself returns, without Retry-After.
func gatewayError(status int) step {
	return loseAnswerThen(answerWith(status, 0, `{"message":"`+http.StatusText(status)+`"}`))
}

// TestPersistentPrograms checks the two programs of the documentation page that repeat their
// request until they have the answer. One signs a new payment for each attempt, with the same
// idempotency key. The other sends a given signature. The service has stored the answer, but a
// gateway loses it in several ways: by errors of the gateway, a closed connection, or half a
// body. The programs also get the error payment_in_progress, which a service can return after
// it was killed and started again. All requests of a program must be for one purchase.
//
// A program may end without the answer, because it gives up or because of Ctrl-C. It must then
// print how to get the answer later, unless no answer can come any more. Like a terminal, the
// test sends Ctrl-C to all processes of a group.
func TestPersistentPrograms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]loss{
		"the answer is lost": {[]step{
			gatewayError(http.StatusInternalServerError), gatewayError(http.StatusServiceUnavailable), dropAnswer,
			loseAnswerThen(answerWithError(http.StatusConflict, 1, "payment_in_progress", "null", true)), dropHalf,
		}, endsAnswered},
		"a long wait":         {[]step{loseAnswerThen(answerWithError(http.StatusGatewayTimeout, 600, "dns_timeout", "true", true))}, endsRedeemed},
		"another offer":       {[]step{loseAnswerThen(removeSignature)}, endsRedeemed},
		"a path that is gone": {[]step{loseAnswerThen(answerWithError(http.StatusNotFound, 0, "unknown_path", "null", false))}, endsRedeemed},
		"interrupted":         {nil, endsRedeemed},
		"nothing is left":     {[]step{loseAnswerThen(answerWithError(http.StatusGatewayTimeout, 0, "dns_timeout", "true", false))}, endsNothing},
	} {
		for _, p := range []program{retryProgram(), signedProgram()} {
			if p.id == "signed" && c.plan == nil {
				continue // this program is a shell loop, so Ctrl-C ends it before it can print anything
			}
			t.Run(name+"/"+p.id, func(t *testing.T) {
				t.Parallel()
				c.check(t, p)
			})
		}
	}
}

// How a program ends.
const (
	endsAnswered = "answered"
	endsRedeemed = "redeemed" // the program has no answer, but prints how to get it
	endsNothing  = "nothing"  // the program has no answer, and none can come any more
)

// loss is a plan whose steps lose answers, and the way in which the program must then end. If
// the plan is nil, the test interrupts the program.
type loss struct {
	plan    []step
	wantEnd string
}

func (c loss) check(t *testing.T, p program) {
	w, s := p.tools(t), start(t)
	requestHeld := make(chan struct{})
	interrupted := c.plan == nil
	if interrupted { // interrupt the program while it waits for its answer
		c.plan = []step{loseAnswerThen(func(r *testbed.Relayed) { close(requestHeld); r.Hold() })}
	}
	g := newGateway(t, s.url, c.plan...)
	cmd := p.changedCommand(t, w, s, s.url, g.url)
	inGroup(t, cmd)
	end, requests := startProgram(t, cmd), 1
	if interrupted {
		select {
		case <-requestHeld:
		case <-time.After(testbed.Patience):
			t.Fatal("the program has not paid")
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // cannot fail: the program is waiting
	}
	o := end()
	if c.wantEnd == endsAnswered {
		requests = len(c.plan) + 1
		o.checkPaid(t, s)
	} else if o.err == nil {
		t.Errorf("it ended well without the answer: %s", o.out)
	}
	if n := len(g.paidRequests()); n != requests {
		t.Errorf("%d paid requests, want %d", n, requests)
	}
	p.checkOnePurchase(t, g)
	if c.wantEnd == endsNothing && (!strings.Contains(o.out, "dns_timeout") || strings.Contains(o.notes, "Not answered")) {
		t.Errorf("it offers to go on where nothing is left: %v: %s\n%s", o.err, o.out, o.notes)
	}
	if c.wantEnd == endsRedeemed {
		p.redeem(t, w, s, g, o.notes)
	}
}

// checkOnePurchase checks that all requests have the same key, and returns the signature of
// the first request. The signatures must all be the same, except those of the program with the
// id "retries". These must all differ, because the program signs a new payment for each
// attempt.
func (p program) checkOnePurchase(t *testing.T, g *gateway) string {
	signatures, keys := map[string]bool{}, map[string]bool{}
	for _, r := range g.paidRequests() {
		signatures[r.signature], keys[r.key] = true, true
	}
	want := 1
	if p.id == "retries" {
		want = len(g.paidRequests())
	}
	if len(signatures) != want || len(keys) != 1 || keys[""] {
		t.Fatalf("%s: %d signatures in %d requests, keys %v", p.id, len(signatures), len(g.paidRequests()), keys)
	}
	return g.paidRequests()[0].signature
}

// redeem gets the answer with the command that the program has printed.
func (p program) redeem(t *testing.T, w workshop, s service, g *gateway, notes string) {
	signature, url := p.checkOnePurchase(t, g), catalog.DNS().ExampleURL(g.url)
	if p.id == "signed" {
		_, command, _ := strings.Cut(strings.TrimSpace(notes), "without a new charge:\n")
		if !strings.HasSuffix(command, "'"+x402.HeaderSignature+": "+signature+"' '"+url+"'") {
			t.Errorf("the program does not say what to send where: %s", notes)
		}
		_, body := runCurl(t, w, command)
		outcome{out: string(body)}.checkPaid(t, s)
		return
	}
	line := regexp.MustCompile(`(?m)^(IDEMPOTENCY_KEY=[0-9a-f-]{36}) (PRIVATE_KEY=0x… .*)$`).FindStringSubmatch(notes)
	if line == nil {
		t.Fatalf("the program does not say how to go on: %s", notes)
	}
	if _, command := readPage(t, s).commands(t, p.title); line[2] != command {
		t.Errorf("it says to run %q, the page %q", line[2], command)
	}
	w.env = append(slices.Clone(w.env), line[1])
	p.run(t, w, s, g.url).checkPaid(t, s)
	p.checkOnePurchase(t, g)
}

// inGroup makes a command start in a new process group. If this process ignored interrupts, the
// command would also ignore them. So this process catches interrupts until the test ends.
func inGroup(t *testing.T, cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	t.Cleanup(func() { signal.Stop(caught) })
}
