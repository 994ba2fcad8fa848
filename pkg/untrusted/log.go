package untrusted

import "log/slog"

// Attr is a ReplaceAttr function for a slog handler. It passes the text of an attribute
// through Text if the value is a string, an error, or a map of strings. Messages, keys and
// values of other types come from this program. A named string type is therefore logged
// unchanged.
func Attr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Text(a.Value.String()))
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(Text(v.Error()))
		case map[string]string:
			clean := make(map[string]string, len(v))
			for key, value := range v {
				clean[Text(key)] = Text(value)
			}
			a.Value = slog.AnyValue(clean)
		}
	default:
	}
	return a
}
