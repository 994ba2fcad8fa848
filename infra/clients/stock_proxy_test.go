package clients

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// longDelay is longer than the five seconds that httpx waits for an answer when
// nothing else is said. The other clients wait without an end.
const longDelay = 6 * time.Second

// fate is what becomes of the service's answer on the way to its client.
type fate string

const (
	arrives fate = "arrives"
	getLost fate = "is lost"
	getCut  fate = "is cut"
	isLate  fate = "is late"
)

// passOn is what the gateway between clients and service does with every payment.
func (t *trial) passOn(g *gateway, w http.ResponseWriter, r *http.Request) {
	answer := g.whole(r)
	body := answer.Body.Bytes()
	switch t.fateOf(signedBy(r.Header.Get(x402.HeaderSignature)), answer.Code, answer.Header().Get(x402.HeaderReplayed), body) {
	case getLost:
		drop(w)
	case getCut:
		send(w, answer, body, body[:len(body)/2])
	case isLate:
		late := time.NewTimer(longDelay)
		defer late.Stop()
		select {
		case <-late.C:
			send(w, answer, body, body)
		case <-r.Context().Done():
		}
	case arrives:
		send(w, answer, body, body)
	}
}

func signedBy(header string) payment {
	var p payment
	raw, err := base64.StdEncoding.DecodeString(header)
	if err == nil {
		_ = json.Unmarshal(raw, &p) // the service judges it
	}
	return p
}

// fateOf: of each buyer's answers the first is lost, whatever it says, and so is
// every result before the service was killed. The next result is cut off, the one
// after it comes late, and then they arrive.
func (t *trial) fateOf(p payment, status int, replayed string, body []byte) fate {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buyers[p.payer]
	if b == nil {
		return arrives // an offer
	}
	b.signed[p.nonce] = true
	b.replies++
	f := arrives
	switch {
	case b.replies == 1 || status == http.StatusOK && !t.revived:
		f = getLost
	case status == http.StatusOK:
		b.results++
		f = [...]fate{getCut, isLate, arrives}[min(b.results, 3)-1]
	}
	if status == http.StatusOK {
		b.served[string(body)] = true
	}
	b.note("signed %.10s: %d %s %s %s", p.nonce, status, codeIn(status, body), replayed, f)
	if t.moment == betweenCalls {
		t.reached(b)
	}
	return f
}

// codeIn is the code of an error.
func codeIn(status int, body []byte) string {
	var e struct {
		Error struct{ Code, Message string }
	}
	if status == http.StatusOK || json.Unmarshal(body, &e) != nil {
		return ""
	}
	if e.Error.Code == "" { // an offer
		var offer struct{ Error string }
		_ = json.Unmarshal(body, &offer)
		return offer.Error
	}
	return e.Error.Code
}
