package simnet

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/openapicheck"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// description is the runner's own OpenAPI description, as it serves it.
func (r *runner) description(t *testing.T) *openapicheck.Document {
	t.Helper()
	d, err := openapicheck.Fetch(t.Context(), payer(t, r).HTTP, r.url)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// described holds an answer to the OpenAPI description.
func (o *observed) described(t *testing.T, op catalog.Operation, reply x402test.Reply) {
	t.Helper()
	if o.api == nil {
		t.Error("there is no description to hold the answer to")
		return
	}
	if err := o.api.Check(openapicheck.Answer{Method: http.MethodGet, Path: op.Path, Status: reply.Status, Header: reply.Header, Body: reply.Body}); err != nil {
		t.Error(err)
	}
}

// asDescribed brings about what the tables do not, for every operation: the
// stored answer, an authorization that is being settled, and too many requests.
func asDescribed(t *testing.T, n *internet, r *runner, seen *observed) {
	for _, op := range catalog.All() {
		t.Run(op.Slug+" replayed", func(t *testing.T) {
			t.Parallel()
			replayed(t, r, seen, op)
		})
		if op.Kind == catalog.SmokeTest {
			continue // it is over before a second request can meet it
		}
		t.Run(op.Slug+" in progress", func(t *testing.T) {
			t.Parallel()
			inProgress(t, r, seen, op)
		})
	}
	t.Run("rate limited", func(t *testing.T) {
		t.Parallel()
		rateLimited(t, startRunner(t, n, "RATE_LIMIT_PER_MINUTE=1"), seen)
	})
}

// payer is a client with a wallet of its own.
func payer(t *testing.T, r *runner) *x402test.Client {
	t.Helper()
	return testbed.NewClient(t, r.http())
}

func replayed(t *testing.T, r *runner, seen *observed, op catalog.Operation) {
	t.Helper()
	client, url := payer(t, r), r.url+op.Path+"?domain=example.com"
	first, signature, err := client.Buy(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.Get(t.Context(), url, signature)
	if err != nil {
		t.Fatal(err)
	}
	seen.described(t, op, first)
	seen.described(t, op, again)
	more := strings.Replace(string(again.Body), "{", `{"more":1,`, 1)
	if seen.api.Check(openapicheck.Answer{Method: http.MethodGet, Path: op.Path, Status: again.Status, Header: again.Header, Body: []byte(more)}) == nil {
		t.Error("a field too many is not seen")
	}
	if first.Status != http.StatusOK || again.Status != http.StatusOK || again.Header.Get(x402.HeaderReplayed) != "true" || string(first.Body) != string(again.Body) {
		t.Errorf("%d %.300s\nand again %d %v %.300s", first.Status, first.Body, again.Status, again.Header, again.Body)
	}
}

// inProgress sends one signature again for as long as its first request waits
// for a silent host.
func inProgress(t *testing.T, r *runner, seen *observed, op catalog.Operation) {
	t.Helper()
	client, url := payer(t, r), r.url+op.Path+"?domain="+silent(op)
	signature, err := client.Sign(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		x402test.Reply
		err error
	}
	ended := make(chan answer, 1)
	go func() {
		reply, err := client.Get(t.Context(), url, signature)
		ended <- answer{reply, err}
	}()
	busy := 0
	for {
		second, err := client.Get(t.Context(), url, signature)
		if err != nil {
			t.Fatal(err)
		}
		seen.described(t, op, second)
		if codeOf(second) == fault.PaymentInProgress {
			busy++
		}
		select {
		case first := <-ended:
			if first.err != nil {
				t.Fatal(first.err)
			}
			seen.described(t, op, first.Reply)
			if codeOf(first.Reply) == fault.PaymentInProgress {
				busy++ // the second overtook it
			}
			if busy == 0 {
				t.Error("none was answered payment_in_progress")
			}
			return
		case <-time.After(200 * time.Millisecond): // how often to ask
		}
	}
}

// silent is a host that an operation waits for in vain.
func silent(op catalog.Operation) string {
	switch op.Slug {
	case catalog.DNS().Slug:
		return "silent.example.com"
	case catalog.Whois().Slug:
		return "hang.com"
	}
	return "mute.example.com"
}

func rateLimited(t *testing.T, r *runner, seen *observed) {
	t.Helper()
	client := payer(t, r)
	for _, op := range catalog.All() {
		const enough = 50 // a limit of one a minute is long used up
		limited := false
		for range enough {
			reply, err := client.Get(t.Context(), r.url+op.Path, "")
			if err != nil {
				t.Fatal(err)
			}
			seen.described(t, op, reply)
			if limited = codeOf(reply) == fault.RateLimited; limited {
				break
			}
		}
		if !limited {
			t.Errorf("%s is never limited", op.Slug)
		}
	}
}

func codeOf(reply x402test.Reply) fault.Code {
	var body struct {
		Error struct{ Code fault.Code }
	}
	if json.Unmarshal(reply.Body, &body) != nil {
		return ""
	}
	return body.Error.Code
}
