package boot

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// parseOrigin reads a public origin: scheme and host, no path.
func parseOrigin(v string) (string, error) {
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || insecure(v):
		return "", errors.New("must be an origin such as https://api.example.com; http is for this machine only")
	case strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil:
		return "", errors.New("must not have a path, a query or a user: crawlers read documents at the root of the origin")
	case !hostname(u):
		return "", errors.New("must have a host name or an address, and a port of 65535 at most if there is one")
	}
	return strings.ToLower(u.Scheme + "://" + u.Host), nil
}

// hostname says whether the host of a URL is one that clients can reach.
func hostname(u *url.URL) bool {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0) {
		return false
	}
	_, err := netip.ParseAddr(u.Hostname())
	name := regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)
	return err == nil || !strings.HasSuffix(u.Host, ":") && name.MatchString(u.Hostname())
}

// insecure says that raw is neither an https URL nor an http URL of this machine.
func insecure(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return true
	}
	return u.Scheme != "https" && (u.Scheme != "http" || !onThisMachine(u))
}

func onThisMachine(u *url.URL) bool {
	ip, _ := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || ip.IsLoopback()
}

// parsePeer reads the URL of a peer that is trusted about money.
func parsePeer(v string) (string, error) {
	if insecure(v) {
		return v, errors.New("must be an https URL; http is for this machine only, because anybody on the way could read credentials and invent a settlement")
	}
	if _, err := facilitator.New(facilitator.Config{URL: v}); err != nil {
		return v, fmt.Errorf("cannot be used: %w", err)
	}
	return v, nil
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

// parseContact reads where the operator can be reached, which stands in a comment of the
// User-Agent.
func parseContact(v string) (string, error) {
	const most = 100
	plain := regexp.MustCompile(`^[A-Za-z0-9._~:/?#@!$&'*+,;=%-]*$`)
	u, err := url.Parse(v)
	ok := err == nil && plain.MatchString(v) && len(v) <= most
	if ok && u.Scheme == "mailto" {
		a, err := mail.ParseAddress(u.Opaque)
		ok = err == nil && a.Address == u.Opaque && u.RawQuery == "" && u.Fragment == ""
	} else {
		ok = ok && u.Scheme == "https" && u.Host != "" && u.User == nil && hostname(u)
	}
	if !ok {
		return "", fmt.Errorf("must be an https URL or mailto: and one address, of at most %d characters", most)
	}
	return v, nil
}

// parseClaims reads what the operator publishes below /.well-known/, by name: the files by
// which indexes of services find out whose a service is. They are of 402 Index, x402
// Trust, the registry of MCP servers, and Glama. They are in the environment, of which
// Lambda takes 4 KB.
func parseClaims(v string) (files map[string]string, err error) {
	const most = 2 << 10
	known := []string{"402index-verify.txt", "x402-trust.txt", "mcp-registry-auth", "glama.json"}
	if json.Unmarshal([]byte(v), &files) != nil || len(v) > most {
		return nil, fmt.Errorf("must be a JSON object of file names and texts, of at most %d bytes", most)
	}
	for file, text := range files {
		plain := text != "" && untrusted.ASCII(strings.ReplaceAll(text, "\n", ""))
		if !slices.Contains(known, file) || !plain || strings.HasSuffix(file, ".json") && !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("has %s; the files are %s, each of printable ASCII characters and line feeds, and JSON where its name says so",
				untrusted.Quote(file, 40), strings.Join(known, ", "))
		}
	}
	return files, nil
}

// parseReceiptKeys reads the public keys of the DID document.
func parseReceiptKeys(v string) (keys []ed25519.PublicKey, err error) {
	for _, text := range listed(v) {
		key, err := receipt.ParsePublic(text)
		if err != nil {
			return nil, fmt.Errorf("is a set of keys; each %w", err)
		}
		keys = append(keys, key)
	}
	if len(keys) > receipt.MaxKeys {
		return nil, fmt.Errorf("has more than %d keys", receipt.MaxKeys)
	}
	return keys, nil
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
	price := regexp.MustCompile(`^[1-9][0-9]{0,17}$`)
	for _, part := range v[1:] {
		what, value, _ := strings.Cut(part, "=")
		_, priced := catalog.BySlug(what)
		switch {
		case what == "payTo" && value != "":
			f.Terms.PayTo = value
			if err := x402.CheckAddress(value, now.Asset); err != nil {
				e.fault(name, "%v", err)
			}
		case priced && price.MatchString(value):
			f.Prices[what] = value
		default:
			e.fault(name, "has %q, which is neither payTo=0x… nor an operation with a price in atomic units, such as dns=5000", part)
		}
	}
	return f
}
