package ledger

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Answer is the stored answer to a paid request.
type Answer struct {
	Status int `json:"status"` // HTTP status
	// Header are the headers that belong to the body; nil where it is JSON of this
	// service.
	Header map[string][]string `json:"header,omitempty"`
	// Encoding of Body: "gzip", or empty for plain.
	Encoding string `json:"encoding,omitempty"`
	// Stored is false when the body was larger than Ledger.MostKept; a repeat then runs the
	// lookup again.
	Stored bool `json:"stored"`
	// Owed names the parts of a bundle's answer that failed for a reason of
	// ours: a repeat runs the lookup again, as long as any is left.
	Owed []string `json:"owed,omitempty"`
	// Receipt is the signed receipt that it was given with, if any.
	Receipt string `json:"receipt,omitempty"`
	// Body is kept beside the JSON form of the record.
	Body []byte `json:"-"`
}

// LargestKept is the most that a Store may keep of the body of an answer, in bytes as it is
// stored, and LeastKept what every one of this module keeps.
const (
	LargestKept = 1 << 20
	LeastKept   = 32 << 10
)

// maxAnswer bounds an answer that is read from the ledger, in bytes as it was served.
const maxAnswer = 8 << 20

// compressors are kept because each takes 800 KB, which would be most of what
// a paid request allocates.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// leastCompressed is the length of a body, in bytes, below which gzip saves less than
// its header and its time are worth.
const leastCompressed = 256

// MostKept is how large an answer may be to be kept, in bytes of its compressed body. One
// that is larger is given once, and a repeat runs the lookup again, MostUnkept times in all.
func (l *Ledger) MostKept() int { return min(l.store.MostKept(), LargestKept) }

// NewAnswer prepares an answer for storing, compressed unless it is short. One that stays
// above MostKept, or is more than Plain reads, is kept without its body.
func (l *Ledger) NewAnswer(status int, body []byte) (Answer, error) {
	if len(body) < leastCompressed {
		return Answer{Status: status, Stored: true, Body: body}, nil
	}
	var b bytes.Buffer
	z := compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // the pool has nothing else
	defer compressors.Put(z)
	z.Reset(&b)
	_, err := z.Write(body)
	if err = errors.Join(err, z.Close()); err != nil {
		return Answer{}, fmt.Errorf("compress answer: %w", err)
	}
	a := Answer{Status: status, Encoding: "gzip"}
	if b.Len() <= l.MostKept() && len(body) <= maxAnswer {
		a.Stored = true
		a.Body = b.Bytes()
	}
	return a, nil
}

// Plain returns the answer's body as it was served. It fails when the body was not stored,
// and with ErrCorrupt when it cannot be read.
func (a Answer) Plain() ([]byte, error) {
	if !a.Stored {
		return nil, errors.New("ledger: the answer's body was not stored")
	}
	if a.Encoding == "" {
		return a.Body, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(a.Body))
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(z, maxAnswer+1))
	}
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("more than %d bytes", maxAnswer)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: stored answer: %w", ErrCorrupt, err)
	}
	return body, nil
}
