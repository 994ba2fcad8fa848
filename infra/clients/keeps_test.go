package clients

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// behind starts a service and a gateway with mishaps in front of it, and runs
// a program there.
func behind(t *testing.T, p program, w workshop, mishaps ...mishap) (outcome, service, *gateway) {
	t.Helper()
	s := start(t, x402test.Honest)
	g := newGateway(t, s, mishaps...)
	return runAt(t, p, w, s, g.url), s, g
}

// TestAnswerIsLostOnTheWay loses the answer that the service has stored in every way a
// gateway can: its own errors, which say nothing of Retry-After, a connection that
// ends, a body that is cut. It is told, too, what a service tells that was killed and
// has come back: the payment is in progress. The program ends with the answer.
func TestAnswerIsLostOnTheWay(t *testing.T) {
	t.Parallel()
	for _, p := range persistent() {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			o, s, g := behind(t, p, p.tools(t),
				says(http.StatusInternalServerError, "", `{"message":"Internal Server Error"}`),
				says(http.StatusServiceUnavailable, "", `{"message":"Service Unavailable"}`),
				lost, says(http.StatusConflict, "1", busy), cut)
			o.checkAnswer(t)
			s.checkPaidOnce(t)
			g.one(t, p)
			if n := g.requests(); n != 6 {
				t.Errorf("%d paid requests, want 6", n)
			}
		})
	}
}

// Errors as the service writes them.
const (
	busy  = `{"error":{"code":"payment_in_progress","message":"It is settling.","charged":null,"retryable":true}}`
	gone  = `{"error":{"code":"unknown_path","message":"No such path.","charged":null,"retryable":false}}`
	owed  = `{"error":{"code":"dns_timeout","message":"DNS resolution timed out.","charged":true,"retryable":true}}`
	final = `{"error":{"code":"dns_timeout","message":"DNS resolution timed out.","charged":true,"retryable":false}}`
)

// TestGivingUp ends a program without an answer, and gets the answer with what
// the program has printed.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		then mishap
	}{
		{"a long wait", says(http.StatusGatewayTimeout, "600", owed)},
		{"another offer", offered},
		{"a path that is gone", says(http.StatusNotFound, "", gone)},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range persistent() {
				t.Run(p.id, func(t *testing.T) {
					t.Parallel()
					w := p.tools(t)
					o, s, g := behind(t, p, w, c.then)
					if o.err == nil {
						t.Errorf("it ended well without the answer: %s", o.out)
					}
					if n := g.requests(); n != 1 {
						t.Errorf("%d paid requests, want 1", n)
					}
					redeems(t, p, w, s, g, o.notes)
				})
			}
		})
	}
}

// redeems gets the answer with what a program has printed: its signature, or the
// key to run it again with.
func redeems(t *testing.T, p program, w workshop, s service, g *gateway, notes string) {
	t.Helper()
	signature := g.one(t, p)
	if p.id == "retries" {
		runsAgain(t, p, w, s, g, notes)
		return
	}
	if !strings.Contains(notes, "'"+signatureHeader+": "+signature+"' '"+catalog.DNS().ExampleURL(g.url)+"'\n") {
		t.Errorf("the program does not say what to send where: %s", notes)
	}
	reply, err := (&x402test.Client{HTTP: &http.Client{Timeout: patience}}).Get(t.Context(), catalog.DNS().ExampleURL(g.url), signature)
	if err != nil {
		t.Fatal(err)
	}
	outcome{out: string(reply.Body)}.checkAnswer(t)
	s.checkPaidOnce(t)
}

// runsAgain runs a program with the key that its last run has printed.
func runsAgain(t *testing.T, p program, w workshop, s service, g *gateway, notes string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^(IDEMPOTENCY_KEY=[0-9a-f-]{36}) (PRIVATE_KEY=0x… .*)$`).FindStringSubmatch(notes)
	if line == nil {
		t.Fatalf("the program does not say how to go on: %s", notes)
	}
	_, command := readPage(t, s).commands(t, p.title)
	if line[2] != command {
		t.Errorf("it says to run %q, the page %q", line[2], command)
	}
	w.env = append(slices.Clone(w.env), line[1])
	runAt(t, p, w, s, g.url).checkAnswer(t)
	s.checkPaidOnce(t)
	g.one(t, p)
}

// TestNothingIsLeft ends a program with the service's last word, after which
// its signature is of no use.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for _, p := range persistent() {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			o, _, g := behind(t, p, p.tools(t), says(http.StatusGatewayTimeout, "", final))
			if o.err == nil || !strings.Contains(o.out, "dns_timeout") {
				t.Errorf("%v: %s\n%s", o.err, o.out, o.notes)
			}
			if n := g.requests(); n != 1 {
				t.Errorf("%d paid requests, want 1", n)
			}
			g.one(t, p)
			if strings.Contains(o.notes, "Not answered") {
				t.Errorf("it offers to go on where nothing is left: %s", o.notes)
			}
		})
	}
}

// TestInterrupted stops the program that waits for its answer.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	p := retries()
	w, s, held := p.tools(t), start(t, x402test.Honest), make(chan struct{})
	g := newGateway(t, s, silent(held))
	r := prepare(t, p, w, s, g.url)
	interrupt := interruptible(t, r.cmd)
	r.start(t)
	select {
	case <-held:
	case <-time.After(patience):
		t.Fatal("the program has not paid")
	}
	interrupt()
	o := r.wait()
	if o.err == nil {
		t.Errorf("it ended well without the answer: %s", o.out)
	}
	redeems(t, p, w, s, g, o.notes)
}
