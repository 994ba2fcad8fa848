package testbed_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// recorder is a testing.TB that collects complaints, and whose test ends when it is
// told to.
type recorder struct {
	testing.TB
	said     []string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) end() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// A connection that is not closed by the side that made it is a fault of the test.
func TestConnectionLeftOpen(t *testing.T) {
	t.Parallel()
	const name, addr = "a.test.com", "93.184.216.34"
	for _, closes := range []bool{true, false} {
		r := &recorder{TB: t}
		w := testbed.NewOrigins(r)
		w.Serve(name, addr, testbed.Answers())
		d := w.Dialer()
		target, err := d.Resolve(testbed.Soon(t), name)
		if err != nil {
			t.Fatal(err)
		}
		conn, _, err := d.Dial(testbed.Soon(t), target, 443)
		if err != nil {
			t.Fatal(err)
		}
		if closes {
			conn.Close()
		}
		r.end()
		if complained := len(r.said) > 0; complained == closes {
			t.Errorf("closed %v: %q", closes, r.said)
		}
		conn.Close()
		if !slices.Equal(w.Dials(), []string{addr + ":443"}) || !slices.Equal(w.Asked(), []string{name}) {
			t.Errorf("dialled %q, asked %q", w.Dials(), w.Asked())
		}
	}
}
