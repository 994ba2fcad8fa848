package storefront

import (
	"io"
	"net/http"
	"time"
)

// BodyTime is how long a client may take to send the body of a request, from the first read
// on.
const BodyTime = 10 * time.Second

// timedBody is the body of a request. It must arrive within BodyTime of the first read. The
// requests that follow on the connection have the usual time-outs of the server.
type timedBody struct {
	io.ReadCloser
	connection *http.ResponseController
	hasBegun   bool
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	if !b.hasBegun {
		b.hasBegun = true
		b.setDeadline(time.Now().Add(BodyTime))
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.setDeadline(time.Time{})
	}
	return n, err
}

// setDeadline sets the deadline for reading the body. It does nothing if the connection cannot
// have a deadline, for example behind an adapter for cloud functions. Such an adapter passes a
// request on only when the body has arrived.
func (b *timedBody) setDeadline(until time.Time) { _ = b.connection.SetReadDeadline(until) }

// withTimedBody returns a copy of a request whose body is a timedBody, and a function to call
// once the answer is written. That function reads the rest of the body, up to maxBytes.
// Otherwise a client that is still sending would lose the connection and, with it, the answer.
// The function does nothing over HTTP/2, where the stream ends anyway. It also does nothing if
// the client sent the header Expect, because such a client waits before it sends the body.
//
// The original request keeps its body, because net/http closes the connection if that body is
// not read to its end. If the connection stayed open, the rest of the body would be taken for
// the next request.
func withTimedBody(w http.ResponseWriter, r *http.Request, maxBytes int64) (timed *http.Request, end func()) {
	connection := http.NewResponseController(w)
	body := &timedBody{ReadCloser: r.Body, connection: connection}
	timed = r.WithContext(r.Context())
	timed.Body = body
	nothing := func() {}
	if r.ProtoMajor != 1 || r.Header.Get("Expect") != "" {
		return timed, nothing
	}
	if err := connection.EnableFullDuplex(); err != nil {
		return timed, nothing
	}
	readRest := func() {
		if r.ContentLength > maxBytes {
			return
		}
		if err := connection.Flush(); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, body, maxBytes+1)
	}
	return timed, readRest
}
