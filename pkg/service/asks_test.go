package service_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing/iotest"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// unpaid asks for a lookup without a payment.
func unpaid(w way) answer { return w.ask("example.com", "") }

// payTwice pays for example.com, and sends the same payment again with a request for the given
// domain.
func payTwice(name string) func(way) answer {
	return func(w way) answer {
		header := w.sign("example.com")
		w.ask("example.com", header)
		return w.ask(name, header)
	}
}

// payWithInvalidKey pays, and sends an invalid purchase key.
func payWithInvalidKey(w way) answer {
	const key = "with space"
	header := w.sign("example.com")
	if w.tool {
		return w.result(w.call(domain("example.com"), header, key))
	}
	return w.reply(w.send(http.MethodGet, dnsPath, "", x402.HeaderSignature, header, x402.HeaderKey, key))
}

// payWhileAnotherRuns pays for a lookup while an earlier lookup of the same client holds the
// only slot. The answer must say that a call of the same client holds the slot. The earlier
// payment must be answered as well.
func payWhileAnotherRuns(w way) answer {
	begun, end, first := make(chan struct{}), make(chan struct{}), make(chan answer)
	w.resolver = func() (dns.Result, error) {
		close(begun)
		<-end
		return noRecords(dns.Query{Domain: "one.example.com"}), nil
	}
	header := w.sign("one.example.com")
	go func() {
		defer close(first)
		first <- w.ask("one.example.com", header)
	}()
	<-begun
	a := w.buy("example.com")
	if !strings.Contains(a.text, "Calls of this client already hold its share of this tool's concurrency cap, 1 of 1.") {
		w.Errorf("whose calls are in the way is not said: %s", a.text)
	}
	close(end)
	w.expect(<-first, 200, "", "")
	return a
}

func askUntilLimited(w way) answer {
	for range 100 {
		if a := unpaid(w); a.code == string(fault.RateLimited) {
			return a
		}
	}
	w.Fatal("nobody limits the rate")
	return answer{}
}

// panicOnce makes the first request panic, before anything is paid.
func panicOnce(p *parts) {
	origin := p.Origin
	var asked atomic.Bool
	p.Origin = func(r *http.Request) string {
		if asked.CompareAndSwap(false, true) {
			panic("bug: x402Version accepts")
		}
		return origin(r)
	}
}

// withoutRandom makes the source of retry tokens fail.
func withoutRandom(p *parts) { p.Random = iotest.ErrReader(errors.New("bug: no entropy")) }

// payCorrupted sends a payment whose record in the ledger is invalid.
func payCorrupted(w way) answer {
	header := w.sign("example.com")
	p, terms := testbed.Must(x402.DecodePayment(header)), testTerms()
	key := ledger.Key(terms.Network, strings.ToLower(terms.Asset), p.From.String(), fmt.Sprintf("0x%x", p.Nonce))
	testbed.Check(w.memory.Plant(w.Context(), key, []byte(`{"key":"`+key+`","state":"paid twice"}`)))
	return w.ask("example.com", header)
}

// reportsExtensions makes the facilitator report the given text about the extensions of a
// payment.
func reportsExtensions(what string) func(*shop) {
	return func(s *shop) { s.extensions = base64.StdEncoding.EncodeToString([]byte(what)) }
}

// payAltered pays with a payment that the function alter has changed after the client signed
// it.
func payAltered(alter func(*x402.Payload)) func(way) answer {
	return func(w way) answer {
		var p x402.Payload
		testbed.Check(json.Unmarshal(testbed.Must(base64.StdEncoding.DecodeString(w.sign("example.com"))), &p))
		alter(&p)
		return w.ask("example.com", testbed.Must(x402.EncodeHeader(p)))
	}
}

func anotherPayee(p *x402.Payload) {
	p.Accepted = bytes.ReplaceAll(p.Accepted, []byte(testTerms().PayTo), []byte("0x"+strings.Repeat("1", 40)))
}
