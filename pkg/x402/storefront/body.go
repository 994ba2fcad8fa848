package storefront

import (
	"io"
	"net/http"
	"time"
)

// BodyTime is how long a body may take to arrive, from when it is first read.
const BodyTime = 10 * time.Second

// timedBody is the body of a request that is given some time to arrive, from when it is first
// read. What comes after it on the connection has the time that the server gives it.
type timedBody struct {
	io.ReadCloser
	connection *http.ResponseController
	begun      bool
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.limit(time.Now().Add(BodyTime))
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.limit(time.Time{})
	}
	return n, err
}

// limit sets until when the body can be read, where the connection can do that: behind an
// adapter for functions the body is there already.
func (b *timedBody) limit(until time.Time) { _ = b.connection.SetReadDeadline(until) }

// withTimedBody returns a request whose body may not be wanted, and what ends it after its
// answer is written: it reads what is left of the body, up to so many bytes. A client that is
// still sending would otherwise lose the answer with its connection. A stream of HTTP/2 ends
// without that, and a client that waits to be told to go on sends nothing.
//
// The request is a copy. By the body of its own request net/http knows that a part of it was
// not read, and ends the connection: otherwise it would take that part for the next request.
func withTimedBody(w http.ResponseWriter, r *http.Request, most int64) (timed *http.Request, end func()) {
	connection := http.NewResponseController(w)
	body := &timedBody{ReadCloser: r.Body, connection: connection}
	timed = r.WithContext(r.Context())
	timed.Body = body
	if r.ProtoMajor != 1 || r.Header.Get("Expect") != "" || connection.EnableFullDuplex() != nil {
		return timed, func() {}
	}
	return timed, func() {
		if r.ContentLength > most || connection.Flush() != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, body, most+1)
	}
}
