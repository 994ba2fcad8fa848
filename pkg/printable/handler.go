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
		attrs = append(attrs, readable(a))
		return true
	})
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	clean.AddAttrs(attrs...)
	return h.next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = readable(a)
	}
	return Handler{h.next.WithAttrs(clean)}
}

// WithGroup implements slog.Handler.
func (h Handler) WithGroup(name string) slog.Handler { return Handler{h.next.WithGroup(name)} }

func readable(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(Text(v.String()))
	case slog.KindGroup:
		var clean []slog.Attr
		for _, member := range v.Group() {
			clean = append(clean, readable(member))
		}
		v = slog.GroupValue(clean...)
	case slog.KindAny:
		v = readableAny(v)
	default: // numbers, times
	}
	return slog.Attr{Key: a.Key, Value: v}
}

func readableAny(v slog.Value) slog.Value {
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
