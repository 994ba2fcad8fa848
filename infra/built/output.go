package built

import (
	"bytes"
	"strings"
	"sync"
)

// Output keeps what a program prints, and finds the address that the local runner
// prints when it is ready. The zero value is ready to be written to.
type Output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	told  bool
	ready chan string
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if _, after, found := strings.Cut(o.text.String(), " is ready on "); found && !o.told {
		if url, _, whole := strings.Cut(after, "\n"); whole {
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
