package programs

import (
	"bytes"
	"strings"
	"sync"
)

// Output is a writer that keeps the output of a program, and finds the address that the program
// prints when it is ready. The zero value is ready for use.
type Output struct {
	mark     string // the text that the program prints before the address; if empty, the local runner's text
	maxBytes int    // how many bytes are kept, from the end; 0 means all
	mu       sync.Mutex
	text     bytes.Buffer
	isReady  bool
	ready    chan string
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if !o.isReady {
		mark := o.mark
		if mark == "" {
			mark = " is ready on "
		}
		_, rest, _ := strings.Cut(o.text.String(), mark)
		if url, _, whole := strings.Cut(rest, "\n"); whole {
			o.isReady = true
			o.readyChannel() <- strings.TrimSpace(url)
		}
	}
	if excess := o.text.Len() - o.maxBytes; o.maxBytes > 0 && excess > 0 {
		o.text.Next(excess)
	}
	return len(p), nil
}

// Ready returns a channel. It receives the address when the program prints it.
func (o *Output) Ready() <-chan string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.readyChannel()
}

func (o *Output) readyChannel() chan string {
	if o.ready == nil {
		o.ready = make(chan string, 1)
	}
	return o.ready
}

// String returns the output that is kept.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Crash returns the part of a log that reports a crash or a data race of the program. It
// returns "" if there is none.
func Crash(log string) string {
	for _, bad := range []string{"panic", "DATA RACE", "fatal error", "goroutine "} {
		if at := strings.Index(log, bad); at >= 0 {
			return log[max(at-500, 0):min(at+2000, len(log))]
		}
	}
	return ""
}
