package boot

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

// Bounds in bytes. A contact is part of the User-Agent. The files are in the
// environment, of which Lambda takes 4 KB.
const (
	maxContact    = 100
	maxClaim      = 1 << 10
	maxClaimFiles = 2 << 10
)

// userAgent names the service to those it calls, with where its operator can be
// reached, or else where the service comes from.
func (c Config) userAgent() string {
	return catalog.Service + "/" + catalog.APIVersion + " (+" + cmp.Or(c.Contact, catalog.Homepage) + ")"
}

// contact reads where the operator can be reached; empty is nowhere.
func (e *environment) contact() string {
	v := e.text(varContact, "")
	u, err := url.Parse(v)
	plain := regexp.MustCompile(`^[A-Za-z0-9._~:/?#@!$&'*+,;=%-]*$`).MatchString(v) // can stand in a comment of a User-Agent
	if v == "" || err == nil && plain && len(v) <= maxContact && reachesSomebody(u) {
		return v
	}
	e.fault(varContact, "must be an https URL or mailto: and one address, of at most %d characters", maxContact)
	return ""
}

func reachesSomebody(u *url.URL) bool {
	if u.Scheme == "mailto" {
		a, err := mail.ParseAddress(u.Opaque)
		return err == nil && a.Address == u.Opaque && u.RawQuery == "" && u.Fragment == ""
	}
	return u.Scheme == "https" && u.Host != "" && u.User == nil && hostname(u)
}

// claimNames are the files below /.well-known/ by which indexes of services find out
// whose a service is: 402 Index, x402 Trust, the registry of MCP servers, and Glama.
func claimNames() []string {
	return []string{"402index-verify.txt", "x402-trust.txt", "mcp-registry-auth", "glama.json"}
}

// claims reads what the operator publishes below /.well-known/, by name.
func (e *environment) claims() map[string]string {
	v := e.text(varWellKnown, "")
	if v == "" {
		return nil
	}
	if len(v) > maxClaimFiles {
		e.fault(varWellKnown, "is longer than %d bytes", maxClaimFiles)
		return nil
	}
	o, err := strictjson.Parse([]byte(v), 1)
	if err != nil {
		e.fault(varWellKnown, "must be a JSON object of file names and texts: %v", err)
		return nil
	}
	files := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		text, _ := o[name].(string)
		switch plain := printable.ASCII(strings.ReplaceAll(text, "\n", "")); {
		case !slices.Contains(claimNames(), name):
			e.fault(varWellKnown, "has %s, which is none of %s", printable.Quote(name, 40), strings.Join(claimNames(), ", "))
		case text == "" || len(text) > maxClaim || !plain:
			e.fault(varWellKnown, "has %s, which must be 1 to %d printable ASCII characters and line feeds", name, maxClaim)
		case strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)):
			e.fault(varWellKnown, "has %s, which is no JSON", name)
		}
		files[name] = text
	}
	return files
}
