package boot

import (
	"encoding/json"
	"maps"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Bounds in bytes. A contact is part of the User-Agent. The files are in the
// environment, of which Lambda takes 4 KB.
const (
	maxContact    = 100
	maxClaim      = 1 << 10
	maxClaimFiles = 2 << 10
)

// origin reads a public origin: scheme and host, no path. Plain http is for
// this machine only.
func (e *environment) origin(name string) string {
	v := e.text(name)
	if v == "" {
		return ""
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		e.fault(name, "must be an origin such as https://api.example.com")
	case strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil:
		e.fault(name, "must not have a path, a query or a user: crawlers read documents at the root of the origin")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		e.fault(name, "must be https unless it is this machine")
	case !hostname(u):
		e.fault(name, "must have a host name or an address, and a port of 65535 at most if there is one")
	default:
		return strings.ToLower(u.Scheme + "://" + u.Host)
	}
	return ""
}

// hostname says whether the host of a URL is one that clients can reach.
func hostname(u *url.URL) bool {
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return false
		}
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return true
	}
	return !strings.HasSuffix(u.Host, ":") && regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$`).MatchString(u.Hostname())
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

// Reachable is how this machine reaches what listens on an address: one that
// stands for every address of the machine is reached at the loopback one.
func Reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // listening on it says what is wrong
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", err == nil && ip.Unmap() == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && ip.WithZone("") == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// address checks an address: a token's, or with the token's one that can hold money,
// which that contract cannot. An empty one has another fault.
func (e *environment) address(name, value, token string) string {
	a, err := x402.ParseAddress(value)
	switch {
	case value == "":
	case token != "" && strings.EqualFold(value, token):
		e.fault(name, "is the token's contract: what is sent there is lost")
	case err != nil:
		e.fault(name, "must be 0x and 40 hexadecimal digits")
	case a == x402.Address{}:
		e.fault(name, "is the zero address: what is sent there is lost")
	case value != strings.ToLower(value) && value[2:] != strings.ToUpper(value[2:]) && value != a.Checksum():
		e.fault(name, "has a wrong checksum (EIP-55): a digit or the letter case is mistyped, or copy it in lower case")
	}
	return value
}

// contact reads where the operator can be reached; empty is nowhere.
func (e *environment) contact() string {
	v := e.text("CONTACT")
	u, err := url.Parse(v)
	plain := regexp.MustCompile(`^[A-Za-z0-9._~:/?#@!$&'*+,;=%-]*$`).MatchString(v) // can stand in a comment of a User-Agent
	if v == "" || err == nil && plain && len(v) <= maxContact && reachesSomebody(u) {
		return v
	}
	e.fault("CONTACT", "must be an https URL or mailto: and one address, of at most %d characters", maxContact)
	return ""
}

func reachesSomebody(u *url.URL) bool {
	if u.Scheme == "mailto" {
		a, err := mail.ParseAddress(u.Opaque)
		return err == nil && a.Address == u.Opaque && u.RawQuery == "" && u.Fragment == ""
	}
	return u.Scheme == "https" && u.Host != "" && u.User == nil && hostname(u)
}

// claims reads what the operator publishes below /.well-known/, by name: the files by
// which indexes of services find out whose a service is. They are of 402 Index, x402
// Trust, the registry of MCP servers, and Glama.
func (e *environment) claims() map[string]string {
	const name = "WELL_KNOWN_FILES"
	known := []string{"402index-verify.txt", "x402-trust.txt", "mcp-registry-auth", "glama.json"}
	v := e.text(name)
	if v == "" {
		return nil
	}
	if len(v) > maxClaimFiles {
		e.fault(name, "is longer than %d bytes", maxClaimFiles)
		return nil
	}
	o, err := strictjson.Parse([]byte(v), 1)
	if err != nil {
		e.fault(name, "must be a JSON object of file names and texts: %v", err)
		return nil
	}
	files := map[string]string{}
	for _, file := range slices.Sorted(maps.Keys(o)) {
		text, _ := o[file].(string)
		switch plain := printable.ASCII(strings.ReplaceAll(text, "\n", "")); {
		case !slices.Contains(known, file):
			e.fault(name, "has %s, which is none of %s", printable.Quote(file, 40), strings.Join(known, ", "))
		case text == "" || len(text) > maxClaim || !plain:
			e.fault(name, "has %s, which must be 1 to %d printable ASCII characters and line feeds", file, maxClaim)
		case strings.HasSuffix(file, ".json") && !json.Valid([]byte(text)):
			e.fault(name, "has %s, which is not JSON", file)
		}
		files[file] = text
	}
	return files
}

// formerTerms reads until when the terms before the last change pass, and what of them
// was different: payTo, and prices by operation. "none" says that they do not pass any
// more.
func (e *environment) formerTerms(now x402.Terms) *service.FormerTerms {
	const name = "FORMER_TERMS"
	v := e.list(name)
	if len(v) == 0 || len(v) == 1 && v[0] == "none" {
		return nil
	}
	f := &service.FormerTerms{Terms: now, Prices: map[string]string{}}
	var err error
	if f.Until, err = time.Parse(time.RFC3339, v[0]); err != nil || len(v) == 1 {
		e.fault(name, "must be none, or a time such as 2026-11-20T08:05:00Z with what was different behind it, such as payTo=0x… or dns=5000")
	}
	for _, part := range v[1:] {
		what, value, _ := strings.Cut(part, "=")
		_, priced := catalog.BySlug(what)
		n, err := strconv.ParseUint(value, 10, 63)
		atomicUnits := err == nil && n > 0 && strconv.FormatUint(n, 10) == value // without leading zeros
		switch {
		case what == "payTo" && value != "":
			f.Terms.PayTo = e.address(name, value, now.Asset)
		case priced && atomicUnits:
			f.Prices[what] = value
		default:
			e.fault(name, "has %q, which is neither payTo=0x… nor an operation with a price in atomic units, such as dns=5000", part)
		}
	}
	return f
}
