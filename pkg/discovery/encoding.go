package discovery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
)

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

// WantsGzip says whether an Accept-Encoding header allows gzip and does not
// prefer the plain text (RFC 9110 §12.5.3). Absent, malformed or too long is
// false. Several lines are to be joined with commas first.
func WantsGzip(accept string) bool {
	if len(accept) > maxAccept {
		return false
	}
	const unsaid = -1
	zipped, identity, others := unsaid, unsaid, unsaid
	for rest := accept; rest != ""; {
		var element string
		element, rest, _ = strings.Cut(rest, ",")
		if element = trim(element); element == "" {
			continue // RFC 9110 §5.6.1.2: empty list elements are ignored
		}
		coding, quality, ok := parseCoding(element)
		if !ok {
			return false
		}
		switch coding {
		case "gzip", "x-gzip": // the same (RFC 9110 §8.4.1.3)
			zipped = max(zipped, quality)
		case "identity":
			identity = max(identity, quality)
		case "*":
			others = max(others, quality)
		}
	}
	if zipped == unsaid {
		zipped = others
	}
	if identity == unsaid {
		identity = others
	}
	return zipped > 0 && zipped >= identity
}

// parseCoding reads one element of Accept-Encoding: a coding and its quality in
// thousandths.
func parseCoding(element string) (coding string, quality int, ok bool) {
	name, weight, weighted := strings.Cut(element, ";")
	if name = trim(name); !isToken(name) {
		return "", 0, false
	}
	if !weighted {
		return strings.ToLower(name), 1000, true
	}
	key, value, _ := strings.Cut(trim(weight), "=")
	if !strings.EqualFold(key, "q") {
		return "", 0, false
	}
	quality, ok = parseQuality(value)
	return strings.ToLower(name), quality, ok
}

// matches says whether an If-None-Match header names a representation, by weak
// comparison (RFC 9110 §13.1.2). Several lines are to be joined with commas
// first.
func matches(header, etag string) bool {
	if trim(header) == "*" {
		return true
	}
	for rest := header; rest != ""; {
		var element string
		element, rest, _ = strings.Cut(rest, ",") // our own tags have no comma
		if strings.TrimPrefix(trim(element), "W/") == etag {
			return true
		}
	}
	return false
}
