package testbed

import (
	"bytes"
	"cmp"
	"strings"
	"sync"
)

// Output keeps what a program prints, and finds the address that the local runner
// prints when it is ready. The zero value is ready to be written to.
type Output struct {
	// Discard keeps nothing, and finds nothing. Set it before the first use.
	Discard bool

	mark  string // what the address stands behind, if not what the local runner prints
	mu    sync.Mutex
	text  bytes.Buffer
	seen  int // bytes of text in whole lines that were looked at
	told  bool
	ready chan string
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.Discard {
		return len(p), nil
	}
	o.text.Write(p)
	for !o.told {
		line, _, whole := bytes.Cut(o.text.Bytes()[o.seen:], []byte("\n"))
		if !whole {
			break
		}
		o.seen += len(line) + 1
		if _, url, found := strings.Cut(string(line), cmp.Or(o.mark, " is ready on ")); found {
			o.told = true
			o.channel() <- strings.TrimSpace(url)
		}
	}
	return len(p), nil
}

// Ready gives the address once, as soon as it was printed.
func (o *Output) Ready() <-chan string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.channel()
}

func (o *Output) channel() chan string {
	if o.ready == nil {
		o.ready = make(chan string, 1)
	}
	return o.ready
}

// String is what was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
