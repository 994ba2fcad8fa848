package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// line is the network between one payer and the seller. It is an http.Handler that passes
// requests on to the seller. It can lose a reply, cut a reply off, or close the connection
// before the reply comes.
type line struct {
	p      *purchase
	seller *http.Client

	mu               sync.Mutex
	cancelRequest    context.CancelFunc // cancels the paid request that is in progress
	connectionClosed chan struct{}      // closed when the connection to the seller is closed
	payerResumed     chan struct{}      // closed when the payer continues after giving up; nil if the payer has not given up
}

// isPaid reports whether a request contains a payment.
func isPaid(r *http.Request, body []byte) bool {
	if r.Header.Get(x402.HeaderSignature) != "" {
		return true
	}
	var message struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &message) != nil {
		return false
	}
	_, paid := message.Params.Meta[metaPayment]
	return paid
}

// ServeHTTP implements http.Handler.
func (l *line) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxReply))
	if err != nil {
		return // the payer is gone
	}
	paid := isPaid(r, body)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if !l.p.stage.waitUntilUp(ctx) { // an outsider may ask while the seller is starting again
		drop(w)
		return
	}
	if paid {
		l.p.countPaidRequest()
		l.beginRequest(cancel)
		l.p.noteOutsiderPayment(r, body)
	}
	res, err := l.seller.Do(l.requestToSeller(ctx, r, body))
	if err != nil {
		if paid {
			l.endRequest()
			l.waitUntilResumed()
		}
		drop(w)
		return
	}
	defer res.Body.Close()
	if !paid {
		streamReply(w, res)
		return
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	l.endRequest()
	if err != nil {
		drop(w)
		return
	}
	got := reply{status: res.StatusCode, header: res.Header, body: answer}
	if l.p.isTool() {
		got.tool = toolResultOf(got)
	}
	l.p.noteOutsiderReply(r, body, got)
	l.passReply(w, got)
}

// requestToSeller returns a copy of a request, addressed to the seller.
func (l *line) requestToSeller(ctx context.Context, r *http.Request, body []byte) *http.Request {
	origin, err := url.Parse(l.p.stage.origin())
	if err != nil {
		origin = &url.URL{Scheme: "http", Host: "127.0.0.1:0"} // no program can listen on port 0, so the request fails
	}
	out := r.Clone(ctx)
	out.RequestURI = ""
	out.URL.Scheme = origin.Scheme
	out.URL.Host = origin.Host
	out.Host = origin.Host
	out.Body = io.NopCloser(bytes.NewReader(body))
	out.ContentLength = int64(len(body))
	return out
}

// beginRequest stores the function that cancels the paid request in progress.
func (l *line) beginRequest(cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancelRequest, l.connectionClosed = cancel, make(chan struct{})
}

// endRequest records that the paid request has ended.
func (l *line) endRequest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connectionClosed != nil {
		close(l.connectionClosed)
		l.connectionClosed = nil
	}
}

// giveUp closes the connection of the paid request in progress, like a payer that has waited
// too long, and returns when the connection is closed. The payer continues when resume is
// called. If no paid request is in progress, giveUp does nothing.
func (l *line) giveUp() (resume func()) {
	l.mu.Lock()
	cancel, gone := l.cancelRequest, l.connectionClosed
	if gone == nil {
		l.mu.Unlock()
		return func() {}
	}
	resumed := make(chan struct{})
	l.payerResumed = resumed
	l.mu.Unlock()
	cancel()
	<-gone
	return func() { close(resumed) }
}

// waitUntilResumed waits until a payer that has given up may continue.
func (l *line) waitUntilResumed() {
	l.mu.Lock()
	resume := l.payerResumed
	l.mu.Unlock()
	if resume != nil {
		<-resume
	}
}

// passReply sends the seller's reply to a paid request on to the payer. If the row says so,
// the reply is cut off or lost.
func (l *line) passReply(w http.ResponseWriter, got reply) {
	arrivingBytes := l.p.countPaidReply(got)
	if arrivingBytes < 0 {
		drop(w)
		return
	}
	maps.Copy(w.Header(), got.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(got.body)))
	w.WriteHeader(got.status)
	_, _ = w.Write(got.body[:arrivingBytes]) // the payer may be gone
	if arrivingBytes < len(got.body) {
		_ = http.NewResponseController(w).Flush()
		drop(w)
	}
}

// streamReply passes a reply on to the payer, as it arrives.
func streamReply(w http.ResponseWriter, res *http.Response) {
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	buffer := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buffer)
		_, _ = w.Write(buffer[:n]) // the payer may be gone
		_ = http.NewResponseController(w).Flush()
		if err != nil {
			return
		}
	}
}

// drop resets a connection, as a failing network does.
func drop(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // makes Close send RST
	}
	_ = connection.Close()
}
