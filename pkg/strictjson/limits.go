package strictjson

import "fmt"

// Limits bound what decoding a document allocates: a few bytes of text can
// become a struct of hundreds.
type Limits struct {
	Depth  int // objects and arrays within each other
	Values int // values in all; 0 is no bound but that of the text
}

// Check counts, and allocates nothing. It does not judge the syntax.
func (l Limits) Check(doc []byte) error {
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
		if depth > l.Depth {
			return fmt.Errorf("nested deeper than %d", l.Depth)
		}
		if l.Values > 0 && values > l.Values {
			return fmt.Errorf("more than %d values", l.Values)
		}
	}
	return nil
}
