package origin

import "unicode/utf8"

// Text is a header value as JSON can hold it. One that is not UTF-8 is read as
// ISO 8859-1, which header values were once meant to be, so that no byte is
// lost.
func Text(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	out := make([]rune, len(value))
	for i := 0; i < len(value); i++ {
		out[i] = rune(value[i])
	}
	return string(out)
}
