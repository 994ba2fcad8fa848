package redirect

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/guard"
)

// maxURL bounds a URL that is followed. Sign-in redirects reach 8 KiB.
const maxURL = 16 << 10

// httpsURL is a URL of a chain in normal form. Two URLs are the same resource
// if they are equal.
type httpsURL struct {
	host string // as guard.Domain returns it
	path string // absolute path and query, printable ASCII
}

func (p httpsURL) url() string { return "https://" + p.host + p.path }

// follow reads the Location fields of an answer that came from a URL. It returns
// the next URL or why there is none, without any call. What a
// reference means is RFC 3986's business, not the browsers', which also accept
// backslashes and missing slashes.
func follow(from httpsURL, location []string) (httpsURL, StopReason) {
	if len(location) == 0 || location[0] == "" {
		return httpsURL{}, MissingLocation
	}
	raw := location[0]
	base, err := url.Parse(from.url())
	if err != nil {
		return httpsURL{}, InvalidLocation
	}
	u, err := base.Parse(raw)
	switch {
	case err != nil, len(raw) > maxURL, emptyAuthority(raw):
		return httpsURL{}, InvalidLocation
	case u.Scheme != "https":
		return httpsURL{}, InsecureRedirect
	case u.Hostname() == "" || u.User != nil || u.Opaque != "":
		return httpsURL{}, InvalidLocation
	case !isPort443(u.Port()):
		return httpsURL{}, BlockedPort
	}
	next := httpsURL{path: requestPath(u)}
	if next.host, err = guard.Domain(u.Hostname(), guard.Hostname); err != nil {
		return httpsURL{}, BlockedHost
	}
	if len(next.url()) > maxURL {
		return httpsURL{}, InvalidLocation
	}
	return next, ""
}

// emptyAuthority says that a reference names no host where it must name one:
// "//", and the same with a query or a fragment. url.Parse reads it as a reference
// without an authority (RFC 3986 §4.2), which leads back to where it came from.
func emptyAuthority(raw string) bool {
	rest, ok := strings.CutPrefix(raw, "//")
	return ok && (rest == "" || rest[0] == '?' || rest[0] == '#')
}

// isPort443 takes no port, an empty one and leading zeros, as URL parsers do.
func isPort443(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n == 443
}

// requestPath is what goes into the request line. url.Parse leaves queries as
// they are, spaces and foreign bytes included, so those are escaped here.
func requestPath(u *url.URL) string {
	path := u.EscapedPath()
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if u.RawQuery == "" && !u.ForceQuery {
		return path
	}
	var out strings.Builder
	out.WriteString(path)
	out.WriteByte('?')
	for _, c := range []byte(u.RawQuery) {
		if c <= ' ' || c > '~' || strings.IndexByte(`"<>`, c) >= 0 {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}
