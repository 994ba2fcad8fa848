package main

import (
	"context"
	"io"
	"log/slog"
	"strconv"
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
	const usual = 256 // bytes; a longer line grows
	line := append(r.Time.AppendFormat(make([]byte, 0, usual), "15:04:05.000"), ' ')
	if r.Level != slog.LevelInfo {
		line = append(append(line, r.Level.String()...), ' ')
	}
	line = append(line, r.Message...)
	for _, a := range l.attrs {
		line = appendAttr(line, a)
	}
	// Metrics are for CloudWatch: they begin with a capital or an underscore.
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "" && a.Key[0] != '_' && (a.Key[0] < 'A' || a.Key[0] > 'Z') {
			line = appendAttr(line, a)
		}
		return true
	})
	line = append(line, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.out.Write(line)
	return err
}

func appendAttr(line []byte, a slog.Attr) []byte {
	line = append(append(append(line, ' '), a.Key...), '=')
	text := a.Value.String()
	if needsQuotes(text) {
		return strconv.AppendQuote(line, text)
	}
	return append(line, text...)
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
