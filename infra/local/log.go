package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
)

// lineLog writes log records as lines for a person: time, level where it
// matters, message, and the attributes.
type lineLog struct {
	mu    *sync.Mutex
	out   io.Writer
	level slog.Level
	attrs []slog.Attr
}

func newLog(out io.Writer, level slog.Level) *slog.Logger {
	return slog.New(&lineLog{mu: &sync.Mutex{}, out: out, level: level})
}

func (l *lineLog) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

func (l *lineLog) Handle(_ context.Context, r slog.Record) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s ", r.Time.Format("15:04:05.000"))
	if r.Level != slog.LevelInfo {
		fmt.Fprintf(&b, "%s ", r.Level)
	}
	b.WriteString(r.Message)
	for _, a := range l.attrs {
		writeAttr(&b, a)
	}
	// Metrics are for CloudWatch: they begin with a capital or an underscore.
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "" && a.Key[0] != '_' && (a.Key[0] < 'A' || a.Key[0] > 'Z') {
			writeAttr(&b, a)
		}
		return true
	})
	b.WriteByte('\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.out.Write(b.Bytes())
	return err
}

func writeAttr(b *bytes.Buffer, a slog.Attr) {
	text := a.Value.String()
	if needsQuotes(text) {
		text = fmt.Sprintf("%q", text)
	}
	fmt.Fprintf(b, " %s=%s", a.Key, text)
}

func needsQuotes(s string) bool {
	for _, r := range s {
		if r <= ' ' || r == '"' || r == '=' || r > '~' {
			return true
		}
	}
	return s == ""
}

func (l *lineLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *l
	c.attrs = append(append([]slog.Attr{}, l.attrs...), attrs...)
	return &c
}

// WithGroup keeps the attributes flat: nothing here logs groups.
func (l *lineLog) WithGroup(string) slog.Handler { return l }

var _ slog.Handler = (*lineLog)(nil)
