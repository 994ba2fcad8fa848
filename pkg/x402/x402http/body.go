package x402http

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// BodyTooLarge is the code of a request whose body is longer than what Post allows.
const BodyTooLarge fault.Code = "body_too_large"

// bodyTime is how long after its request a body may arrive.
const bodyTime = 10 * time.Second

// tooLarge is the fault of a body that is longer than what may be sent.
func (x *sale) tooLarge() *fault.Error {
	info := fault.Info{Code: BodyTooLarge, Status: http.StatusRequestEntityTooLarge, Class: fault.NoCharge}
	return info.Newf(nil, "The body is too long: it may have %d bytes.", x.maxBody)
}

// readBody reads the body of a request that carries a payment. Its error is a *fault.Error.
func (x *sale) readBody(r *http.Request) ([]byte, error) {
	switch {
	case r.PostForm != nil || r.MultipartForm != nil:
		return nil, fault.New(fault.InternalError, errReadBefore)
	case r.ContentLength > x.maxBody:
		return nil, x.tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, x.maxBody+1))
	switch {
	case err != nil:
		return nil, fault.Newf(fault.InvalidArguments, err, "The body did not arrive whole within %d seconds.", bodyTime/time.Second)
	case int64(len(body)) > x.maxBody:
		return nil, x.tooLarge()
	case r.ContentLength >= 0 && r.ContentLength != int64(len(body)):
		return nil, fault.New(fault.InternalError, errReadBefore)
	}
	return body, nil
}

// errReadBefore says that the body is not there, which would be a part of the purchase.
var errReadBefore = errors.New("the body was read before it came to x402http: what reads bodies belongs behind what is sold")

// bodyName is what a purchase says of a body: its media type, its content encoding, and its
// SHA-256.
func bodyName(h http.Header, body []byte) string {
	mediaType, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		mediaType = cmp.Or(h.Get("Content-Type"), "-")
		params = nil
	}
	encoding := cmp.Or(strings.Join(h.Values("Content-Encoding"), ", "), "-")
	sum := sha256.Sum256(body)
	if mediaType == "multipart/form-data" {
		parts, err := formSum(body, params["boundary"])
		if err == nil { // what cannot be read as a form is named as it is
			sum = parts
			delete(params, "boundary")
		}
	}
	if formatted := mime.FormatMediaType(mediaType, params); formatted != "" {
		mediaType = formatted
	}
	return fmt.Sprintf("%s %s sha256:%s", strconv.QuoteToASCII(mediaType), strconv.QuoteToASCII(encoding), hex.EncodeToString(sum[:]))
}

// formSum is the SHA-256 of the parts of a multipart form (RFC 7578): of each its headers,
// sorted, and its bytes.
func formSum(body []byte, boundary string) (sum [sha256.Size]byte, err error) {
	if boundary == "" {
		return sum, errors.New("the form has no boundary")
	}
	digest := sha256.New()
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return [sha256.Size]byte(digest.Sum(nil)), nil
		}
		if err != nil {
			return sum, err
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return sum, err
		}
		for _, name := range slices.Sorted(maps.Keys(part.Header)) {
			for _, value := range part.Header[name] {
				addText(digest, []byte(name))
				addText(digest, []byte(value))
			}
		}
		addText(digest, nil) // no header has an empty name
		addText(digest, content)
	}
}

// addText adds a text to a digest, with its length, so that no two sequences of texts are the
// same bytes.
func addText(digest hash.Hash, text []byte) {
	digest.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
	digest.Write(text)
}

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
		b.limit(time.Now().Add(bodyTime))
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

// takesBody prepares a request whose body may not be wanted, and returns what ends it after
// its answer is written: it reads what is left of the body, up to so many bytes. A client that
// is still sending would otherwise lose the answer with its connection. A stream of HTTP/2
// ends without that.
func takesBody(w http.ResponseWriter, r *http.Request, most int64) (end func()) {
	connection := http.NewResponseController(w)
	body := &timedBody{ReadCloser: r.Body, connection: connection}
	r.Body = body
	if r.ProtoMajor != 1 || connection.EnableFullDuplex() != nil {
		return func() {}
	}
	return func() {
		if r.ContentLength > most || connection.Flush() != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, body, most+1)
	}
}
