package printable

import (
	"context"
	"log/slog"
)

// Handler is a slog.Handler that passes every attribute's text through Text:
// strings, errors, and maps of strings. Messages and keys are constants of
// ours, and values of any other type are not a peer's.
type Handler struct{ next slog.Handler }

var _ slog.Handler = Handler{}

// Log is a logger to the same place whose attributes are fit to be read. One
// that is such a logger already is returned as it is.
func Log(l *slog.Logger) *slog.Logger {
	if _, done := l.Handler().(Handler); done {
		return l
	}
	return slog.New(Handler{l.Handler()})
}

// Enabled implements slog.Handler.
func (h Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h Handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	clean.AddAttrs(allReadable(attrs)...)
	return h.next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Handler{h.next.WithAttrs(allReadable(attrs))}
}

// WithGroup implements slog.Handler.
func (h Handler) WithGroup(name string) slog.Handler { return Handler{h.next.WithGroup(name)} }

func allReadable(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = slog.Attr{Key: a.Key, Value: readable(a.Value.Resolve())}
	}
	return clean
}

func readable(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(Text(v.String()))
	case slog.KindGroup:
		return slog.GroupValue(allReadable(v.Group())...)
	default:
	}
	switch x := v.Any().(type) {
	case error:
		return slog.StringValue(Text(x.Error()))
	case map[string]string:
		clean := make(map[string]string, len(x))
		for key, value := range x {
			clean[Text(key)] = Text(value)
		}
		return slog.AnyValue(clean)
	}
	return v
}
