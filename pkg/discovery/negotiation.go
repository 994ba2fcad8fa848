package discovery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"mime"
	"strconv"
	"strings"
	"sync"
)

// maxAccept bounds the headers that are looked at. Browsers send some 150 bytes; for a
// longer one the answer is as without it.
const maxAccept = 1024

// preferences are the qualities in Accept or Accept-Encoding (RFC 9110, section 12.4.2), by
// names in lower case; of equal names the most favourable counts. A name whose parameters
// ask for a variant ends in a semicolon. Several headers are to be joined with commas
// first. ok is false for one that is too long or cannot be read.
func preferences(header string) (list map[string]float64, ok bool) {
	if len(header) > maxAccept {
		return nil, false
	}
	list = map[string]float64{}
	quoted, escaped := false, false
	for text := range strings.FieldsFuncSeq(header, func(r rune) bool {
		quoted, escaped = quoted != (r == '"' && !escaped), quoted && r == '\\' && !escaped
		return r == ',' && !quoted
	}) {
		if strings.Trim(text, " \t") == "" {
			continue // RFC 9110, section 5.6.1.2: empty elements are ignored
		}
		name, params, err := mime.ParseMediaType(text)
		if err != nil {
			return nil, false
		}
		q, variant := 1.0, ""
		for key, value := range params {
			switch key {
			case "q":
				q, err = strconv.ParseFloat(value, 64)
				decimal := strings.Trim(value, "0123456789.") == "" && len(value) <= len("0.000") && !strings.HasPrefix(value, ".")
				if err != nil || q > 1 || !decimal {
					return nil, false
				}
			case "charset": // ours is UTF-8, whatever is asked
			default:
				variant = ";"
			}
		}
		list[name+variant] = max(q, list[name+variant])
	}
	return list, true
}

// quality is that of the most specific of some names, which are given from the least
// specific on. It is below 0 where none is there.
func quality(list map[string]float64, names ...string) float64 {
	q := -1.0
	for _, name := range names {
		if own, there := list[name]; there {
			q = own
		}
	}
	return q
}

// WantsHTML reports whether an Accept header strictly prefers text/html over
// application/json. Equal, absent, malformed or too long is false: programs get JSON
// unless they clearly ask for a page. A range with parameters, such as
// text/html;level=1, asks for a variant that does not exist here, so it does not make
// HTML wanted; for JSON it does count, which is the safe side.
func WantsHTML(accept string) bool {
	if accept == "" || strings.EqualFold(accept, "application/json") || accept == "*/*" {
		return false // as programs ask
	}
	list, ok := preferences(accept)
	html := quality(list, "*/*", "text/*", "text/html")
	for name, q := range maps.Clone(list) {
		ok = ok && strings.Contains(name, "/")
		if plain := strings.TrimSuffix(name, ";"); plain != name {
			list[plain] = max(list[plain], q)
		}
	}
	return ok && html > max(0, quality(list, "*/*", "application/*", "application/json"))
}

// WantsGzip reports whether an Accept-Encoding header allows gzip, which can be called
// x-gzip (RFC 9110, section 8.4.1.3), and does not prefer the plain text (section 12.5.3).
// Absent, malformed or too long is false.
func WantsGzip(accept string) bool {
	list, ok := preferences(accept)
	for name := range list {
		ok = ok && !strings.HasSuffix(name, ";")
	}
	zipped := max(quality(list, "*", "x-gzip", "gzip"), list["x-gzip"])
	return ok && zipped > 0 && zipped >= quality(list, "*", "identity")
}

// zippers are kept because each takes a megabyte. They have the default level: the
// best takes twice as long for one percent less.
var zippers sync.Pool

// Gzip is a body in gzip, the same bytes each time.
func Gzip(body []byte) []byte {
	var b bytes.Buffer
	z, ok := zippers.Get().(*gzip.Writer)
	if !ok {
		z = gzip.NewWriter(nil)
	}
	defer zippers.Put(z)
	z.Reset(&b)
	_, _ = z.Write(body) // a Buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

// etagOf is a strong validator of a body.
func etagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}
