package boot

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
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
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// parseOrigin parses a public origin, which has a scheme and a host but no path.
func parseOrigin(v string) (string, error) {
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || isInsecure(v):
		return "", errors.New("must be an origin such as https://api.example.com; http is allowed only on this machine")
	case strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil:
		return "", errors.New("must not have a path, a query or a user: crawlers read documents at the root of the origin")
	case !hasValidHost(u):
		return "", errors.New("must have a host name or an address, and a port of 65535 at most if there is one")
	}
	return strings.ToLower(u.Scheme + "://" + u.Host), nil
}

// hasValidHost reports whether the host of a URL is a valid name or IP address. If the URL has
// a port, the port must be valid as well.
func hasValidHost(u *url.URL) bool {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0) {
		return false
	}
	_, err := netip.ParseAddr(u.Hostname())
	name := regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)
	return err == nil || !strings.HasSuffix(u.Host, ":") && name.MatchString(u.Hostname())
}

// isInsecure reports whether raw is neither an https URL nor an http URL for this machine.
func isInsecure(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return true
	}
	return u.Scheme != "https" && (u.Scheme != "http" || !isOnThisMachine(u))
}

func isOnThisMachine(u *url.URL) bool {
	ip, _ := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || ip.IsLoopback()
}

// parsePeer parses the URL of a facilitator. The service trusts the facilitator's answers about
// payments, so the URL must be https, or http on this machine.
func parsePeer(v string) (string, error) {
	if isInsecure(v) {
		return "", errors.New("must be an https URL; http is allowed only on this machine, because anybody between the two could read credentials and invent a settlement")
	}
	if _, err := facilitator.New(facilitator.Config{URL: v}); err != nil {
		return "", fmt.Errorf("cannot be used: %w", err)
	}
	return v, nil
}

// Reachable returns an address at which this machine reaches a listener on addr. If addr stands
// for all addresses of the machine, such as 0.0.0.0, the result is the loopback address.
func Reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // addr is malformed, and net.Listen will say so
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", err == nil && ip.Unmap() == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && ip.WithZone("") == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// parseContact parses the URL at which the operator can be reached. Its characters must be
// safe in a comment of the User-Agent header.
func parseContact(v string) (string, error) {
	const maxLength = 100
	plain := regexp.MustCompile(`^[A-Za-z0-9._~:/?#@!$&'*+,;=%-]*$`)
	u, err := url.Parse(v)
	ok := err == nil && plain.MatchString(v) && len(v) <= maxLength
	if ok && u.Scheme == "mailto" {
		a, err := mail.ParseAddress(u.Opaque)
		ok = err == nil && a.Address == u.Opaque && u.RawQuery == "" && u.Fragment == ""
	} else {
		ok = ok && u.Scheme == "https" && u.Host != "" && u.User == nil && hasValidHost(u)
	}
	if !ok {
		return "", fmt.Errorf("must be an https URL or mailto: and one address, of at most %d characters", maxLength)
	}
	return v, nil
}

// parseClaims parses the texts of the files that the operator publishes below /.well-known/,
// and returns them by file name. 402 Index, x402 Trust, the registry of MCP servers, and Glama
// read these files to verify who owns a service. The size is limited because Lambda allows
// only 4 KB for the whole environment.
func parseClaims(v string) (files map[string]string, err error) {
	const maxSize = 2 << 10
	known := []string{"402index-verify.txt", "x402-trust.txt", "mcp-registry-auth", "glama.json"}
	if json.Unmarshal([]byte(v), &files) != nil || len(v) > maxSize {
		return nil, fmt.Errorf("must be a JSON object of file names and texts, of at most %d bytes", maxSize)
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

// parseReceiptKeys parses the public keys of the DID document.
func parseReceiptKeys(v string) (keys []ed25519.PublicKey, err error) {
	list, _ := parseList(v)
	for _, text := range list {
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

// formerTerms holds the terms that the last change has replaced, and the time until which they
// are accepted. If a term did not change, its field is empty.
type formerTerms struct {
	until  time.Time
	payTo  string
	prices map[string]string // former prices in atomic units, by the slug of the operation
}

// parseFormerTerms parses FORMER_TERMS. First comes the time until which the former terms are
// accepted. Then come the terms that have changed, with their former values: payTo, and the
// prices of operations. "none" means that the former terms are no longer accepted.
func parseFormerTerms(v string) (*formerTerms, error) {
	list, _ := parseList(v)
	if len(list) == 0 || len(list) == 1 && list[0] == "none" {
		return nil, nil
	}
	f := &formerTerms{prices: map[string]string{}}
	var faults []error
	var err error
	f.until, err = time.Parse(time.RFC3339, list[0])
	if err != nil || len(list) == 1 {
		faults = append(faults, errors.New("must be none, or a time such as 2026-11-20T08:05:00Z followed by the old terms, such as payTo=0x… or dns=5000"))
	}
	for _, difference := range list[1:] {
		if err := f.parseDifference(difference); err != nil {
			faults = append(faults, err)
		}
	}
	return f, errors.Join(faults...)
}

// parseDifference parses one former term.
func (f *formerTerms) parseDifference(text string) error {
	what, value, _ := strings.Cut(text, "=")
	if what == "payTo" && value != "" {
		var err error
		f.payTo, err = parseAddress(value)
		return err
	}
	_, priced := catalog.BySlug(what)
	_, err := parseAmount(value)
	if !priced || err != nil {
		return fmt.Errorf("has %q, which is neither payTo=0x… nor an operation with a price in atomic units, such as dns=5000", text)
	}
	f.prices[what] = value
	return nil
}

// parseAddress parses the address of an account or of a token.
func parseAddress(v string) (string, error) { return v, x402.CheckAddress(v, "") }

// parseNetwork parses the CAIP-2 name of a network.
func parseNetwork(v string) (string, error) {
	if _, err := x402.ChainID(v); err != nil {
		return "", fmt.Errorf("must be a CAIP-2 id such as %s", x402.Base)
	}
	return v, nil
}

// parseYes parses yes and no.
func parseYes(v string) (bool, error) {
	switch v {
	case "yes":
		return true, nil
	case "no":
		return false, nil
	}
	return false, errors.New("must be yes or no")
}

// parseLevel parses the lowest level that is logged.
func parseLevel(v string) (level slog.Level, err error) {
	known := []string{"debug", "info", "warn", "error"} // slog accepts more, such as info+2
	if !slices.Contains(known, strings.ToLower(v)) {
		return level, errors.New("must be debug, info, warn or error")
	}
	err = level.UnmarshalText([]byte(v))
	return level, err
}

// parseAmount parses a price in atomic units.
func parseAmount(v string) (*big.Int, error) {
	if !regexp.MustCompile(`^[1-9][0-9]{0,17}$`).MatchString(v) {
		return nil, errors.New("must be atomic units, such as 5000")
	}
	amount, _ := new(big.Int).SetString(v, 10)
	return amount, nil
}

// countParser returns a parser of whole numbers from 0 to the given maximum.
func countParser(maximum int) func(string) (int, error) {
	return func(v string) (int, error) {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > maximum {
			return 0, fmt.Errorf("must be a whole number from 0 to %d; 0 turns it off", maximum)
		}
		return n, nil
	}
}

// parseList splits a list at its commas. It omits empty elements.
func parseList(v string) (all []string, _ error) {
	for element := range strings.SplitSeq(v, ",") {
		element = strings.TrimSpace(element)
		if element != "" {
			all = append(all, element)
		}
	}
	return all, nil
}

// parseBootstrapURL parses the URL of IANA's file of registries.
func parseBootstrapURL(v string) (string, error) {
	if _, err := whois.ParseBootstrapURL(v); err != nil {
		return "", fmt.Errorf("is %w", err)
	}
	return v, nil
}

// parseTableName parses the name of a DynamoDB table. The pattern does not limit the length,
// because compiling a repetition such as {3,255} would take a twentieth of a function's start.
func parseTableName(v string) (string, error) {
	const most = 255
	if len(v) > most || !regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,}$`).MatchString(v) {
		return "", errors.New("must be a DynamoDB table name")
	}
	return v, nil
}

// parseStackName parses the name of a stack. As in parseTableName, the pattern does not limit
// the length.
func parseStackName(v string) (string, error) {
	const maxLength = 128
	if len(v) > maxLength || !regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]*$`).MatchString(v) {
		return "", fmt.Errorf("must be letters, digits and hyphens, %d at most, a letter first", maxLength)
	}
	return v, nil
}

// parseAccept parses the code with which the operator accepts a ledger file that was refused.
func parseAccept(v string) (string, error) {
	if !regexp.MustCompile(`^[A-Z2-7]{8}$`).MatchString(v) {
		return "", errors.New("must be the word in the message that refused the ledger file")
	}
	return v, nil
}

// secretName has the complete ARN of a secret, and the region that the ARN names. Requests for
// the secret are sent to that region. With a complete ARN, a permission can be limited to
// exactly this secret.
type secretName struct{ arn, region string }

// parseSecretName parses the ARN of a secret.
func parseSecretName(v string) (secretName, error) {
	form := regexp.MustCompile(`^arn:aws[a-z-]*:secretsmanager:([a-z0-9-]+):[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}$`)
	found := form.FindStringSubmatch(v)
	if found == nil {
		return secretName{}, errors.New("must be the complete ARN of a Secrets Manager secret, with its six random characters at the end")
	}
	return secretName{arn: v, region: found[1]}, nil
}

// nodeChoice is the value of RPC_URL: nothing, "none", "secret", or the URLs of nodes.
type nodeChoice struct {
	noneWanted, inSecret bool
	urls                 []string
}

// Words that RPC_URL can be instead of a list of URLs.
const (
	wordNone   = "none"   // no node is used
	wordSecret = "secret" // the secret names the nodes
)

// parseNodes parses RPC_URL. Its error does not quote the URLs, because they may contain keys.
func parseNodes(v string) (nodeChoice, error) {
	switch v {
	case wordNone:
		return nodeChoice{noneWanted: true}, nil
	case wordSecret:
		return nodeChoice{inSecret: true}, nil
	}
	urls, _ := parseList(v)
	if len(urls) == 0 || len(urls) > chain.MaxNodes || slices.ContainsFunc(urls, isInsecure) {
		return nodeChoice{}, fmt.Errorf("must be an https URL (http only for this machine), or none, or %s, or up to %d URLs separated by commas", wordSecret, chain.MaxNodes)
	}
	return nodeChoice{urls: urls}, nil
}
