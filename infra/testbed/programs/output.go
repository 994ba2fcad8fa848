package programs

import (
	"bytes"
	"strings"
	"sync"
)

// Output keeps what a program prints, and finds the address that the local runner
// prints when it is ready. The zero value is ready to be written to.
type Output struct {
	mark  string // what the address stands behind, if not what the local runner prints
	most  int    // how many bytes at the end are kept; 0 is all of them
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
	if !o.told {
		mark := o.mark
		if mark == "" {
			mark = " is ready on "
		}
		_, rest, _ := strings.Cut(o.text.String(), mark)
		if url, _, whole := strings.Cut(rest, "\n"); whole {
			o.told = true
			o.channel() <- strings.TrimSpace(url)
		}
	}
	if over := o.text.Len() - o.most; o.most > 0 && over > 0 {
		o.text.Next(over)
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

// String is what was printed, as far as it is kept.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Crash is the part of a log in which a program says that it has crashed, or that the
// race detector has seen something; empty if there is none.
func Crash(log string) string {
	for _, bad := range []string{"panic", "DATA RACE", "fatal error", "goroutine "} {
		if at := strings.Index(log, bad); at >= 0 {
			return log[max(at-500, 0):min(at+2000, len(log))]
		}
	}
	return ""
}
