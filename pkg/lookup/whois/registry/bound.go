package registry

import (
	"bytes"
	"errors"
)

var (
	errDeep = errors.New("whois: JSON nested too deep")
	errMany = errors.New("whois: JSON with too many values")
)

// bounded counts what decoding a JSON document will allocate before it does: a
// few bytes of text can become a struct of hundreds. It does not judge the
// syntax.
func bounded(doc []byte, maxDepth, maxValues int) error {
	depth, values, quoted := 0, 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			values++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			values++
		}
		if depth > maxDepth {
			return errDeep
		}
		if values > maxValues {
			return errMany
		}
	}
	return nil
}

// trimBOM drops a byte order mark, which RFC 8259 §8.1 lets a reader ignore.
func trimBOM(doc []byte) []byte { return bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf")) }
