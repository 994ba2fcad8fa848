// Package registry is WHOIS Intelligence: what the registry says about a domain,
// over RDAP (spec §2.3, §4.4).
//
// It asks the one server that the IANA bootstrap file names for the top-level
// domain, once, about the registrable domain of the name it is given: cut by
// the ICANN section of the public suffix list, because registries do not
// answer for host names. When it has none of a name like www.gov.uk, it asks once
// more, about the suffix. It follows no link in an answer, and no redirect but
// through the same guard. Certificates of RDAP servers are verified.
//
// It guarantees that an answer is about the name that was asked, that every
// byte from outside is bounded, and that nothing it started outlives a call.
// It keeps no answers; it keeps the bootstrap file (RFC 9224) in memory and in
// a Cache, refreshes it once a day beside a lookup, and uses the old one for as
// long as no new one can be had.
//
//	a domain object of that name            the result
//	404, or an error object that says 404   not_found
//	no server for the top-level domain      rdap_unavailable
//	any other answer; a server that is not
//	public or does not connect              rdap_upstream
//	silence                                 whois_timeout
//	resolvers down, no route to the server  whois_timeout: ours, not the registry's
//	no bootstrap file was ever loaded       bootstrap_unavailable
package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

// Limits of a bootstrap file. In 2026 it has 49 KB, 600 services and 1,200
// top-level domains.
const (
	maxBootstrap       = 512 << 10
	maxBootstrapDepth  = 8
	maxBootstrapValues = 50_000
	maxBaseURL         = 256
)

// registry is a bootstrap file as read: base URL by domain suffix. It is never
// changed.
type registry map[string]string

// parseRegistry reads a bootstrap file for domains (RFC 9224 §3, §4). A file
// that is not of that form, or that names no usable server, is an error as a
// whole, so that it never replaces a good one. A single URL that cannot be used
// is passed over, as an unknown scheme would have to be.
func parseRegistry(doc []byte) (registry, error) {
	if len(doc) > maxBootstrap {
		return nil, fmt.Errorf("whois: a bootstrap file of more than %d bytes", maxBootstrap)
	}
	doc = trimBOM(doc)
	if err := (strictjson.Limits{Depth: maxBootstrapDepth, Values: maxBootstrapValues}).Check(doc); err != nil {
		return nil, fmt.Errorf("whois: bootstrap file: %w", err)
	}
	var file struct {
		Version  string       `json:"version"`
		Services [][][]string `json:"services"`
	}
	if err := json.Unmarshal(doc, &file); err != nil {
		return nil, fmt.Errorf("whois: bootstrap file: %w", err)
	}
	if file.Version != "1.0" {
		return nil, fmt.Errorf("whois: bootstrap file of version %.20q", file.Version)
	}
	r := registry{}
	for i, s := range file.Services {
		if len(s) != 2 {
			return nil, fmt.Errorf("whois: bootstrap file: service %d has %d parts", i, len(s))
		}
		base := chooseBase(s[1])
		if base == "" {
			continue
		}
		for _, suffix := range s[0] {
			r.add(suffix, base)
		}
	}
	if len(r) == 0 {
		return nil, errors.New("whois: bootstrap file: no usable service")
	}
	return r, nil
}

// add leaves out the root and what cannot be the end of a domain name. The
// first service that names a suffix has it.
func (r registry) add(suffix, base string) {
	name := hostname(suffix)
	if _, taken := r[name]; name != "" && !taken {
		r[name] = base
	}
}

// find returns the base URL of the longest suffix of a name, by whole labels
// (RFC 9224 §4).
func (r registry) find(name string) (base string, ok bool) {
	for more := true; more; _, name, more = strings.Cut(name, ".") {
		if base, ok = r[name]; ok {
			return base, true
		}
	}
	return "", false
}

// chooseBase prefers the first https URL over the first http one (RFC 9224
// §5.1); empty when none can be used.
func chooseBase(urls []string) string {
	plain := ""
	for _, raw := range urls {
		u, ok := parseBase(raw)
		switch {
		case ok && u.Scheme == "https":
			return u.String()
		case ok && plain == "":
			plain = u.String()
		}
	}
	return plain
}

// parseBase reads a base URL and makes it end in a slash.
func parseBase(raw string) (*url.URL, bool) {
	if len(raw) > maxBaseURL {
		return nil, false
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, false
	}
	if _, err := whois.Port(u); err != nil || u.Hostname() == "" {
		return nil, false
	}
	u.Host = strings.ToLower(u.Host)
	if !strings.HasSuffix(u.EscapedPath(), "/") {
		u = u.JoinPath("/")
	}
	return u, true
}

// trimBOM drops a byte order mark, which RFC 8259 §8.1 lets a reader ignore.
func trimBOM(doc []byte) []byte { return bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf")) }
