package untrusted_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

type stackTrace string

// TestLog checks that text from others is bounded and has no hidden characters in a log line,
// in every kind of attribute. A value of a named string type does not change.
func TestLog(t *testing.T) {
	t.Parallel()
	hostile := "\u009b2J\u202e\u2028" + strings.Repeat("\x01", 64000)
	want := untrusted.Text(hostile)
	stack := strings.Repeat("goroutine\n", 200)
	for name, c := range map[string]struct {
		write func(l *slog.Logger)
		want  any
	}{
		"string":    {write: func(l *slog.Logger) { l.Info("m", "v", hostile) }, want: want},
		"error":     {write: func(l *slog.Logger) { l.Info("m", "v", errors.New(hostile)) }, want: want},
		"map":       {write: func(l *slog.Logger) { l.Info("m", "v", map[string]string{hostile: hostile}) }, want: map[string]any{want: want}},
		"group":     {write: func(l *slog.Logger) { l.Info("m", slog.Group("v", "a", hostile)) }, want: map[string]any{"a": want}},
		"number":    {write: func(l *slog.Logger) { l.Info("m", "v", 7) }, want: 7.0},
		"a type":    {write: func(l *slog.Logger) { l.Info("m", "v", stackTrace(stack)) }, want: stack},
		"structure": {write: func(l *slog.Logger) { l.Info("m", "v", struct{ A int }{1}) }, want: map[string]any{"A": 1.0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c.write(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: untrusted.Attr})))
			var line map[string]any
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			got, _ := json.Marshal(line["v"])
			if wanted, _ := json.Marshal(c.want); !bytes.Equal(got, wanted) {
				t.Errorf("%s, want %s", got, wanted)
			}
		})
	}
}
