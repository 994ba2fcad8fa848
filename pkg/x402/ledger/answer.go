package ledger

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxStored bounds a stored answer, compressed, in bytes. DynamoDB charges a write
// unit per KB, and what is not stored is looked up again.
const MaxStored = 32 << 10

// maxAnswer bounds an answer that is read from the ledger, in bytes.
const maxAnswer = 8 << 20

// compressors are kept because each takes 800 KB, which would be most of what
// a paid request allocates.
var compressors sync.Pool

// NewAnswer prepares an answer for storing, compressed. One that stays above
// MaxStored is kept without its body; a repeat then runs the lookup again.
func NewAnswer(status int, body []byte) (Answer, error) {
	var b bytes.Buffer
	z, ok := compressors.Get().(*gzip.Writer)
	if !ok {
		z = gzip.NewWriter(&b)
	}
	defer compressors.Put(z)
	z.Reset(&b)
	if _, err := z.Write(body); err != nil {
		return Answer{}, fmt.Errorf("compress answer: %w", err)
	}
	if err := z.Close(); err != nil {
		return Answer{}, fmt.Errorf("compress answer: %w", err)
	}
	a := Answer{Status: status, Encoding: "gzip"}
	if b.Len() <= MaxStored {
		a.Stored, a.Body = true, b.Bytes()
	}
	return a, nil
}

// Plain is the answer's body as it was served.
func (a Answer) Plain() ([]byte, error) {
	if !a.Stored {
		return nil, errors.New("ledger: the answer's body was not stored")
	}
	if a.Encoding == "" {
		return a.Body, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: stored answer: %w", ErrCorrupt, err)
	}
	body, err := io.ReadAll(io.LimitReader(z, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%w: stored answer: %w", ErrCorrupt, err)
	}
	return body, nil
}
