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

// curled is the one answer that a command of the page has printed with curl -i.
func curled(t *testing.T, w workshop, line string, env ...string) (*http.Response, []byte) {
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

// TestCurl: the command on the page is answered with the price, and moves no money. A
// signature that a wallet has made is then sent, through a lost settlement, and once more,
// both without a key: the command makes the same one of the same signature.
// That the page shows what is answered is in the tests of pkg/discovery.
func TestCurl(t *testing.T) {
	t.Parallel()
	w, s := curlWorkshop(t), start(t, x402test.FailAfter)
	shown := readPage(t, s)
	res, body := curled(t, w, shown.programs["curl"])
	if _, err := (x402test.Reply{Header: res.Header}).Required(); err != nil || res.StatusCode != http.StatusPaymentRequired || len(s.books.Transfers()) != 0 {
		t.Errorf("%s, %v: %s; moved %v", res.Status, err, body, s.books.Transfers())
	}
	signature := sign(t, s.url)
	for _, replayed := range []string{"", "true"} {
		res, body := curled(t, w, shown.programs["signed"], "SIGNATURE="+signature)
		if res.StatusCode != http.StatusOK || res.Header.Get(x402.HeaderResponse) == "" || res.Header.Get(x402.HeaderReplayed) != replayed {
			t.Fatalf("%s %v", res.Status, res.Header)
		}
		outcome{out: string(body)}.checkPaid(t, s)
		if n, _ := s.books.Settles(); n != 2 {
			t.Errorf("%d settlements were asked for, want 2: the first one's news is lost", n)
		}
	}
}

// unwrapped is the JSON in a header.
func unwrapped(header string) string {
	return string(testbed.Must(base64.StdEncoding.DecodeString(header)))
}

// sign is a signature that a wallet has made for the example call.
func sign(t *testing.T, origin string) string {
	client := testbed.NewClient(t, &http.Client{Timeout: testbed.Patience})
	return testbed.Must(client.Sign(t.Context(), catalog.DNS().ExampleURL(origin)))
}

// gatewayError is how API Gateway answers by itself: it says nothing of Retry-After.
func gatewayError(status int) step {
	return lostThen(says(status, 0, `{"message":"`+http.StatusText(status)+`"}`))
}

// TestPersistentPrograms are those that end with the answer, whatever is lost on the
// way: the one that signs each attempt anew under one key, and the one that is given a
// signature. The service has stored its answer, and it is lost in every way a gateway
// can: its own errors, a connection that ends, a body that is cut. They are told, too,
// what a service tells that was killed and has come back: the payment is in progress.
// A program that ends without the answer, of itself or by Ctrl-C, which a terminal sends to
// all processes of a group, says how to get it, unless there is none.
func TestPersistentPrograms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]loss{
		"the answer is lost": {[]step{
			gatewayError(http.StatusInternalServerError), gatewayError(http.StatusServiceUnavailable), cutAfter,
			lostThen(fails(http.StatusConflict, 1, "payment_in_progress", "null", true)), cutWithin,
		}, endsAnswered},
		"a long wait":         {[]step{lostThen(fails(http.StatusGatewayTimeout, 600, "dns_timeout", "true", true))}, endsRedeemed},
		"another offer":       {[]step{lostThen(stripped)}, endsRedeemed},
		"a path that is gone": {[]step{lostThen(fails(http.StatusNotFound, 0, "unknown_path", "null", false))}, endsRedeemed},
		"interrupted":         {nil, endsRedeemed},
		"nothing is left":     {[]step{lostThen(fails(http.StatusGatewayTimeout, 0, "dns_timeout", "true", false))}, endsNothing},
	} {
		for _, p := range []program{retries(), signed()} {
			if p.id == "signed" && c.plan == nil {
				continue // it does not outlive curl
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
	endsRedeemed = "redeemed" // without the answer, and it says how to get it
	endsNothing  = "nothing"  // left to get
)

// loss is what is lost on the way of a program, step by step, and how the program ends. One
// without steps is interrupted.
type loss struct {
	plan []step
	ends string
}

func (c loss) check(t *testing.T, p program) {
	w, s := p.tools(t), start(t)
	held := make(chan struct{})
	interrupted := c.plan == nil
	if interrupted { // while it waits for its answer
		c.plan = []step{lostThen(func(r *testbed.Relayed) { close(held); r.Hold() })}
	}
	g := newGateway(t, s.url, c.plan...)
	cmd := p.at(t, w, s, s.url, g.url)
	inGroup(t, cmd)
	end, requests := begun(t, cmd), 1
	if interrupted {
		select {
		case <-held:
		case <-time.After(testbed.Patience):
			t.Fatal("the program has not paid")
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // it is there
	}
	o := end()
	if c.ends == endsAnswered {
		requests = len(c.plan) + 1
		o.checkPaid(t, s)
	} else if o.err == nil {
		t.Errorf("it ended well without the answer: %s", o.out)
	}
	if n := len(g.paid()); n != requests {
		t.Errorf("%d paid requests, want %d", n, requests)
	}
	p.one(t, g)
	if c.ends == endsNothing && (!strings.Contains(o.out, "dns_timeout") || strings.Contains(o.notes, "Not answered")) {
		t.Errorf("it offers to go on where nothing is left: %v: %s\n%s", o.err, o.out, o.notes)
	}
	if c.ends == endsRedeemed {
		p.redeem(t, w, s, g, o.notes)
	}
}

// one wants one signature, or one key with a signature of each attempt. It returns the first.
func (p program) one(t *testing.T, g *gateway) string {
	signatures, keys := map[string]bool{}, map[string]bool{}
	for _, r := range g.paid() {
		signatures[r.signature], keys[r.key] = true, true
	}
	want := 1
	if p.id == "retries" {
		want = len(g.paid())
	}
	if len(signatures) != want || len(keys) != 1 || keys[""] {
		t.Fatalf("%s: %d signatures in %d requests, keys %v", p.id, len(signatures), len(g.paid()), keys)
	}
	return g.paid()[0].signature
}

// redeem gets the answer with what a program has printed.
func (p program) redeem(t *testing.T, w workshop, s service, g *gateway, notes string) {
	signature, url := p.one(t, g), catalog.DNS().ExampleURL(g.url)
	if p.id == "signed" {
		_, command, _ := strings.Cut(strings.TrimSpace(notes), "without a new charge:\n")
		if !strings.HasSuffix(command, "'"+x402.HeaderSignature+": "+signature+"' '"+url+"'") {
			t.Errorf("the program does not say what to send where: %s", notes)
		}
		_, body := curled(t, w, command)
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
	p.one(t, g)
}

// inGroup gives a command a new process group, in which an interrupt is not ignored.
func inGroup(t *testing.T, cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	t.Cleanup(func() { signal.Stop(caught) })
}
