package discovery

import "strings"

// maxAccept bounds the Accept header that is looked at. Browsers send some 150
// bytes; a longer one gets JSON.
const maxAccept = 1024

// WantsHTML says whether an Accept header strictly prefers text/html over
// application/json (RFC 9110 §12.5.1: quality by the most specific range that
// matches). Equal, absent, malformed or too long is false: programs get JSON
// unless they clearly ask for a page. Several Accept lines are to be joined
// with commas first.
func WantsHTML(accept string) bool {
	if len(accept) > maxAccept {
		return false
	}
	html, json := preference{kind: "text", sub: "html"}, preference{kind: "application", sub: "json"}
	for rest := accept; rest != ""; {
		var element string
		element, rest = cutOutsideQuotes(rest, ',')
		if element = trim(element); element == "" {
			continue // RFC 9110 §5.6.1.2: empty list elements are ignored
		}
		r, ok := parseRange(element)
		if !ok {
			return false
		}
		html.see(r)
		json.see(r)
	}
	return html.quality > json.quality
}

// mediaRange is one element of an Accept header.
type mediaRange struct {
	kind, sub string
	quality   int // thousandths
	narrowed  bool
}

// preference collects the quality of one media type.
type preference struct {
	kind, sub   string
	specificity int // 0: nothing matched yet
	quality     int
}

// see takes a range into account. Of ranges that are equally specific the most
// favourable counts. A range with parameters, such as text/html;level=1, asks
// for a variant that does not exist here, so it does not make HTML wanted; for
// JSON it does count, which is the safe side.
func (p *preference) see(r mediaRange) {
	specificity := 0
	switch {
	case r.kind == p.kind && r.sub == p.sub:
		specificity = 3
	case r.kind == p.kind && r.sub == "*":
		specificity = 2
	case r.kind == "*" && r.sub == "*":
		specificity = 1
	}
	if specificity == 0 || r.narrowed && p.sub == "html" {
		return
	}
	if specificity > p.specificity || specificity == p.specificity && r.quality > p.quality {
		p.specificity, p.quality = specificity, r.quality
	}
}

func parseRange(element string) (mediaRange, bool) {
	name, params := cutOutsideQuotes(element, ';')
	kind, sub, ok := strings.Cut(strings.ToLower(trim(name)), "/")
	if !ok || !isToken(kind) || !isToken(sub) || kind == "*" && sub != "*" {
		return mediaRange{}, false
	}
	r := mediaRange{kind: kind, sub: sub, quality: 1000}
	for params != "" {
		var param string
		param, params = cutOutsideQuotes(params, ';')
		if param = trim(param); param == "" {
			continue
		}
		key, value, ok := strings.Cut(param, "=")
		if !ok || !isToken(key) {
			return mediaRange{}, false
		}
		switch strings.ToLower(key) {
		case "q":
			if r.quality, ok = parseQuality(value); !ok {
				return mediaRange{}, false
			}
		case "charset": // ours is UTF-8, whatever is asked
		default:
			r.narrowed = true
		}
	}
	return r, true
}

// parseQuality reads a qvalue (RFC 9110 §12.4.2) in thousandths.
func parseQuality(s string) (int, bool) {
	whole, frac, _ := strings.Cut(s, ".")
	if whole != "0" && whole != "1" || len(frac) > 3 {
		return 0, false
	}
	q := 0
	for i := range 3 {
		q *= 10
		if i < len(frac) {
			if frac[i] < '0' || frac[i] > '9' {
				return 0, false
			}
			q += int(frac[i] - '0')
		}
	}
	if whole == "1" {
		return 1000, q == 0
	}
	return q, true
}

// cutOutsideQuotes cuts at the first separator that is not inside a quoted
// string.
func cutOutsideQuotes(s string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// trim removes optional white space (RFC 9110 §5.6.3).
func trim(s string) string { return strings.Trim(s, " \t") }

// isToken says whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
