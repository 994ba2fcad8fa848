package clients

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
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

// serveProxy stands between clients and service. Like API Gateway it lets the
// service finish what it has begun when the client is gone.
func (t *trial) serveProxy(w http.ResponseWriter, r *http.Request) {
	p := signedBy(r.Header.Get(signatureHeader))
	status, header, body := t.gateway.ask(r.WithContext(context.WithoutCancel(r.Context())), t.url)
	f := t.fateOf(p, status, header.Get("Idempotent-Replayed"), body)
	switch f {
	case getLost:
		panic(http.ErrAbortHandler)
	case isLate:
		late := time.NewTimer(longDelay)
		defer late.Stop()
		select {
		case <-late.C:
		case <-r.Context().Done():
			return
		}
	case getCut, arrives:
	}
	for name, values := range header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	if f == getCut {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush() // the client may be gone
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
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
		if b.answeredAt.IsZero() {
			b.answeredAt = time.Now()
		}
		b.lastAt = time.Now()
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
