package testbed_test

import (
	"fmt"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// The address is found however its line is cut, and given once.
func TestOutput(t *testing.T) {
	t.Parallel()
	const line = "Hostfacts is ready on http://127.0.0.1:8402\n"
	for cut := range len(line) {
		var o testbed.Output
		for _, part := range []string{"building ...\n", line[:cut], line[cut:], "another is ready on nothing\n"} {
			fmt.Fprint(&o, part)
		}
		select {
		case url := <-o.Ready():
			if url != "http://127.0.0.1:8402" {
				t.Errorf("cut at %d: ready on %q", cut, url)
			}
		default:
			t.Errorf("cut at %d: not ready", cut)
		}
		select {
		case url := <-o.Ready():
			t.Errorf("cut at %d: ready again, on %q", cut, url)
		default:
		}
		if o.String() != "building ...\n"+line+"another is ready on nothing\n" {
			t.Errorf("cut at %d: %q", cut, o.String())
		}
	}
	var o testbed.Output
	fmt.Fprint(&o, line[:len(line)-1]) // the rest of the address may come
	select {
	case url := <-o.Ready():
		t.Errorf("ready on %q", url)
	default:
	}
}
