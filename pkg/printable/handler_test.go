package printable_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// Whatever way a peer's text takes into a line, it is bounded and shows nothing
// that steers; what is ours stays as it is.
func TestLog(t *testing.T) {
	t.Parallel()
	hostile := "\u009b2J\u202e\u2028" + strings.Repeat("\x01", 64000)
	want := printable.Text(hostile)
	stack := strings.Repeat("goroutine\n", 200)
	for name, c := range map[string]struct {
		write func(l *slog.Logger)
		want  any
	}{
		"string":       {func(l *slog.Logger) { l.Info("m", "v", hostile) }, want},
		"error":        {func(l *slog.Logger) { l.Info("m", "v", errors.New(hostile)) }, want},
		"map":          {func(l *slog.Logger) { l.Info("m", "v", map[string]string{hostile: hostile}) }, map[string]any{want: want}},
		"group":        {func(l *slog.Logger) { l.Info("m", slog.Group("v", "a", hostile)) }, map[string]any{"a": want}},
		"with":         {func(l *slog.Logger) { l.With("v", hostile).Info("m") }, want},
		"inside group": {func(l *slog.Logger) { l.WithGroup("v").Info("m", "a", hostile) }, map[string]any{"a": want}},
		"valuer":       {func(l *slog.Logger) { l.Info("m", "v", lazy(hostile)) }, want},
		"number":       {func(l *slog.Logger) { l.Info("m", "v", 7) }, 7.0},
		"our own":      {func(l *slog.Logger) { l.Info("m", "v", printable.Own(stack)) }, stack},
		"structure":    {func(l *slog.Logger) { l.Info("m", "v", struct{ A int }{1}) }, map[string]any{"A": 1.0}},
		"level below":  {func(l *slog.Logger) { l.Debug("m", "v", "debug"); l.Info("m", "v", "info") }, "info"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c.write(printable.Log(printable.Log(slog.New(slog.NewJSONHandler(&out, nil)))))
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

// lazy is an attribute that makes its value when it is written.
type lazy string

func (l lazy) LogValue() slog.Value { return slog.StringValue(string(l)) }
