package lambdahost

import (
	"bytes"
	"testing"
)

func TestLineWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &lineWriter{to: &out}
	for _, step := range []struct{ write, have string }{
		{"a", ""}, {"b\nc", "ab\n"}, {"", "ab\n"}, {"d\ne\nf", "ab\ncd\ne\n"}, {"\n", "ab\ncd\ne\nf\n"}, {"tail", "ab\ncd\ne\nf\n"},
	} {
		p := []byte(step.write)
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Errorf("%q: %d, %v", step.write, n, err)
		}
		clear(p) // the writer must not keep the caller's buffer
		if out.String() != step.have {
			t.Errorf("after %q: %q, want %q", step.write, out.String(), step.have)
		}
	}
	w.flush()
	w.flush()
	if want := "ab\ncd\ne\nf\ntail\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
