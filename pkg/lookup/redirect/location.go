package redirect

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
)

// httpsURL is the normal form of a URL in a chain. Two URLs name the same resource if they are
// equal.
type httpsURL struct {
	host string // as guard.Domain returns it
	path string // absolute path and query, printable ASCII
}

func (p httpsURL) url() string { return "https://" + p.host + p.path }

// resolveLocation returns the URL that an answer redirects to, or the reason why there is
// none. base is the URL of the answer, and location holds the answer's Location fields, of
// which only the first counts. resolveLocation sends nothing. It parses a reference as
// browsers do, by the URL standard of the WHATWG: a backslash counts as a slash, extra or
// missing slashes after the scheme do not matter, and a stray percent sign is kept. Unlike
// browsers, it refuses a URL with a user name or a password.
func resolveLocation(base httpsURL, location []string) (next httpsURL, stop StopReason) {
	if len(location) == 0 || location[0] == "" {
		return next, MissingLocation
	}
	raw := location[0]
	if len(raw) > maxURL {
		return next, InvalidLocation
	}
	// Blanks and control characters at the ends are ignored; tabs and line ends are ignored
	// everywhere.
	raw = strings.TrimFunc(raw, func(r rune) bool { return r <= ' ' })
	raw = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(raw)
	scheme, rest := cutScheme(raw)
	if scheme != "" && scheme != "https" {
		return next, InsecureRedirect
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	next = base
	path, oldQuery, hadQuery := strings.Cut(base.path, "?")
	segments := strings.Split(path, "/")[1:]
	switch slashes := len(rest) - len(strings.TrimLeft(rest, `/\`)); {
	case slashes >= 2:
		authority := rest[slashes:]
		end := strings.IndexAny(authority+"/", `/\`)
		next.host, stop = hostOf(authority[:end])
		if stop != "" {
			return httpsURL{}, stop
		}
		segments = joinPath(nil, authority[min(end+1, len(authority)):])
	case slashes == 1:
		segments = joinPath(nil, rest[1:])
	case rest != "":
		segments = joinPath(segments[:len(segments)-1], rest)
	case !hasQuery:
		query = oldQuery
		hasQuery = hadQuery
	}
	next.path = "/" + strings.Join(segments, "/")
	if hasQuery {
		next.path += "?" + percentEncode(query, "\"<>'")
	}
	if len(next.url()) > maxURL {
		return httpsURL{}, InvalidLocation
	}
	return next, ""
}

// cutScheme splits a reference after the colon of its scheme. It returns the scheme in lower
// case, without the colon. If the reference has no scheme, scheme is "".
func cutScheme(raw string) (scheme, rest string) {
	name, rest, ok := strings.Cut(raw, ":")
	for i, c := range []byte(strings.ToLower(name)) {
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(c))) {
			ok = false
		}
	}
	if !ok || name == "" {
		return "", raw
	}
	return strings.ToLower(name), rest
}

// hostOf returns the host of an authority. It returns a stop reason unless the guard accepts
// the host and the port is 443.
func hostOf(authority string) (host string, stop StopReason) {
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		if strings.Trim(authority[:at], ":") != "" {
			return "", InvalidLocation // the authority has a user name or a password
		}
		authority = authority[at+1:]
	}
	bracket := strings.Index(authority, "]") + 1 // the colons before the bracket belong to an IPv6 address, not to a port
	name, port, _ := strings.Cut(authority[bracket:], ":")
	number, err := strconv.ParseUint("0"+port, 10, 16)
	decoded, isInvalid := decodeHost(authority[:bracket] + name)
	switch {
	case err != nil, isInvalid:
		return "", InvalidLocation
	case port != "" && number != origin.Port:
		return "", BlockedPort
	}
	host, err = guard.Domain(decoded, guard.DNSName)
	if err != nil {
		return "", BlockedHost
	}
	return host, ""
}

// decodeHost decodes the percent escapes of a host. The result isInvalid is true if a URL
// cannot have such a host, whatever the guard says about it.
func decodeHost(host string) (decoded string, isInvalid bool) {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return host, !closed || err != nil || a.Zone() != ""
	}
	var out []byte
	for i := 0; i < len(host); i++ {
		c := host[i]
		if c == '%' && i+2 < len(host) {
			if b, err := strconv.ParseUint(host[i+1:i+3], 16, 8); err == nil {
				c = byte(b)
				i += 2
			}
		}
		out = append(out, c)
	}
	decoded = string(out)
	forbidden := func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune("#%/:<>?@[\\]^|", r)
	}
	return decoded, decoded == "" || !utf8.ValidString(decoded) || strings.ContainsFunc(decoded, forbidden)
}

// joinPath appends a path to segments and resolves its dot segments. path has no leading slash.
func joinPath(segments []string, path string) []string {
	parts := strings.Split(strings.ReplaceAll(path, `\`, "/"), "/")
	for i, part := range parts {
		dots := strings.ReplaceAll(strings.ToLower(part), "%2e", ".")
		switch {
		case dots == "..":
			segments = segments[:max(len(segments)-1, 0)]
		case dots != ".":
			segments = append(segments, percentEncode(part, "\"<>`{}^"))
			continue
		}
		if i == len(parts)-1 {
			segments = append(segments, "")
		}
	}
	return segments
}

// percentEncode percent-encodes the bytes that must not appear in a request line, and the
// bytes in extra. It leaves existing escapes unchanged.
func percentEncode(text, extra string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || strings.IndexByte(extra, c) >= 0 {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}
