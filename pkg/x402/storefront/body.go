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

// limit sets the time until which the body can be read, where the connection has such a time.
// Behind an adapter for functions it has none, and the body is there already.
func (b *timedBody) limit(until time.Time) { _ = b.connection.SetReadDeadline(until) }

// withTimedBody returns a copy of a request whose body may not be wanted, and a function to
// call when its answer is written. That reads the rest of the body, most bytes of it: a client
// that is still sending would otherwise lose the answer with its connection. A stream of HTTP/2
// ends without that, and a client that waits to be told to go on sends nothing.
//
// The request is a copy, so that net/http still sees the body of its own request. It ends the
// connection where a rest of that was not read, and would take the rest for the next request if
// it did not.
func withTimedBody(w http.ResponseWriter, r *http.Request, most int64) (timed *http.Request, end func()) {
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
		if r.ContentLength > most {
			return
		}
		if err := connection.Flush(); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, body, most+1)
	}
	return timed, readRest
}
