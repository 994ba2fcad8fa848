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
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// BodyTooLarge is the code of the error for a request whose body is longer than Post allows.
const BodyTooLarge fault.Code = "body_too_large"

// tooLargeFault returns the fault for a body that is longer than Post allows.
func (x *sale) tooLargeFault() *fault.Error {
	info := fault.Info{
		Code:   BodyTooLarge,
		Status: http.StatusRequestEntityTooLarge,
		Class:  fault.NoCharge,
	}
	return info.Newf(nil, "The body is too long: it may have %d bytes.", x.maxBody)
}

// readBody reads the body of a request that carries a payment. Its error is a *fault.Error.
func (x *sale) readBody(r *http.Request) ([]byte, error) {
	switch {
	case r.PostForm != nil || r.MultipartForm != nil:
		return nil, fault.New(fault.InternalError, errReadBefore)
	case r.ContentLength > x.maxBody:
		return nil, x.tooLargeFault()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, x.maxBody+1))
	switch {
	case err != nil:
		return nil, fault.Newf(fault.InvalidArguments, err, "The body did not arrive whole within %d seconds.", storefront.BodyTime/time.Second)
	case int64(len(body)) > x.maxBody:
		return nil, x.tooLargeFault()
	case r.ContentLength >= 0 && r.ContentLength != int64(len(body)):
		return nil, fault.New(fault.InternalError, errReadBefore)
	}
	return body, nil
}

// errReadBefore is the error if other code has already read a body or a part of it. The body
// is part of the purchase, so it must be complete.
var errReadBefore = errors.New("the body was read before it came to x402http: what reads bodies belongs behind what is sold")

// bodyName returns the part of a purchase's name that stands for the body: the media type, the
// content encoding, and the SHA-256 of the body.
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
		if err == nil { // otherwise the body is not a form, and sum stays the SHA-256 of all its bytes
			sum = parts
			delete(params, "boundary")
		}
	}
	if formatted := mime.FormatMediaType(mediaType, params); formatted != "" {
		mediaType = formatted
	}
	return fmt.Sprintf("%s %s sha256:%s",
		strconv.QuoteToASCII(mediaType),
		strconv.QuoteToASCII(encoding),
		hex.EncodeToString(sum[:]))
}

// formSum returns the SHA-256 of the parts of a multipart form (RFC 7578): of the sorted
// headers and the bytes of each part.
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
		addText(digest, nil) // ends the headers: no header has an empty name
		addText(digest, content)
	}
}

// addText adds a text to a digest, preceded by its length. Two different sequences of texts
// therefore never add the same bytes.
func addText(digest hash.Hash, text []byte) {
	digest.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
	digest.Write(text)
}
