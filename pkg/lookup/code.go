// Package lookup defines the error codes of the lookups (spec §7.2 and §7.3). The packages in
// its subfolders use these codes in their errors.
package lookup

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// The codes of validation errors, spec §7.2.
const (
	InvalidDomain  fault.Code = "invalid_domain"
	InvalidType    fault.Code = "invalid_type"
	InvalidPort    fault.Code = "invalid_port"
	BlockedAddress fault.Code = "blocked_address"
)

// The codes of lookup errors, spec §7.3.
const (
	NXDomain             fault.Code = "nxdomain"
	RDAPUnavailable      fault.Code = "rdap_unavailable"
	NotFound             fault.Code = "not_found"
	ConnectFailed        fault.Code = "connect_failed"
	HandshakeFailed      fault.Code = "handshake_failed"
	HTTPFailed           fault.Code = "http_failed"
	RDAPUpstream         fault.Code = "rdap_upstream"
	UpstreamUnavailable  fault.Code = "upstream_unavailable"
	BootstrapUnavailable fault.Code = "bootstrap_unavailable"
	DNSTimeout           fault.Code = "dns_timeout"
	SSLTimeout           fault.Code = "ssl_timeout"
	WhoisTimeout         fault.Code = "whois_timeout"
	HeadersTimeout       fault.Code = "headers_timeout"
	RedirectTimeout      fault.Code = "redirect_timeout"
	HostIntelTimeout     fault.Code = "host_intel_timeout"
	UptimeCheckTimeout   fault.Code = "uptime_check_timeout"
)

// Codes returns all codes of the lookups in the order of the spec.
func Codes() []fault.Info { return slices.Clone(table()) }

// Info returns the description of a code of this package. For any other code it returns the
// description of internal_error.
func Info(c fault.Code) fault.Info {
	if i := slices.IndexFunc(table(), func(i fault.Info) bool { return i.Code == c }); i >= 0 {
		return table()[i]
	}
	return fault.New(fault.InternalError, nil).Info()
}

// Fault returns an error with the code c and its default message. cause is the underlying
// error, or nil. It is logged, and never shown to the client.
func Fault(c fault.Code, cause error) *fault.Error { return Info(c).New(cause) }

// Faultf is like Fault, but with a public message made from format and args.
func Faultf(c fault.Code, cause error, format string, args ...any) *fault.Error {
	return Info(c).Newf(cause, format, args...)
}

// Looker looks up one kind of fact. Its errors have a code of this package or the code
// internal_error.
type Looker[Q, R any] interface {
	Lookup(ctx context.Context, q Q) (R, error)
}

// table returns the descriptions of the codes of spec §7.2 and §7.3, in the order of the spec.
// The list is built once.
var table = sync.OnceValue(func() []fault.Info {
	row := func(c fault.Code, status int, message string, class fault.Class, remedy string) fault.Info {
		return fault.Info{
			Code:    c,
			Status:  status,
			Message: message,
			Class:   class,
			Remedy:  remedy,
		}
	}
	refused := func(c fault.Code, message, remedy string) fault.Info {
		return row(c, http.StatusBadRequest, message, fault.NoCharge, remedy)
	}
	answer := func(c fault.Code, status int, message, remedy string) fault.Info {
		return row(c, status, message, fault.Answer, remedy)
	}
	owed := func(c fault.Code, status int, message, remedy string) fault.Info {
		i := row(c, status, message, fault.Owed, remedy)
		i.Retry = true
		i.After = time.Second
		return i
	}
	return []fault.Info{
		refused(InvalidDomain, "domain must be a public name, such as example.com.",
			"Send one public domain name: no URL, port, IP address or internal name."),
		refused(InvalidType, "The record type must be one of A, AAAA, MX, TXT, CNAME, NS, SOA.",
			"Send one of the types that the operation lists."),
		refused(InvalidPort, "port must be 443.",
			"Leave port out, or send 443."),
		answer(BlockedAddress, http.StatusBadRequest, "The domain resolves to a private, loopback or metadata address.",
			"Ask about a host with a public address; the service never connects to private ones."),

		answer(NXDomain, http.StatusNotFound, "The domain name does not exist.",
			"Check the spelling of the name. The domain may also have expired."),
		answer(RDAPUnavailable, http.StatusNotFound, "The top-level domain has no RDAP server.",
			"Ask the registry of that top-level domain directly: it publishes nothing over RDAP."),
		answer(NotFound, http.StatusNotFound, "The registry has no registration of the domain.",
			"Check the spelling. If it is right, the name is free, reserved, or kept by another registry (names below ac.uk, for instance)."),
		answer(ConnectFailed, http.StatusBadGateway, "The TCP connection to the host failed.",
			"Check that the host is up and accepts connections on port 443 from anywhere, including over IPv4."),
		answer(HandshakeFailed, http.StatusBadGateway, "The TLS handshake failed.",
			"Check the TLS configuration of the host; ssl-check shows its certificate if there is one."),
		answer(HTTPFailed, http.StatusBadGateway, "Connected, but the HTTPS request failed.",
			"Check that the host answers HTTP/1.1 over TLS on port 443."),
		owed(RDAPUpstream, http.StatusBadGateway, "The RDAP server returned an unusable response.",
			"Send the same request again later; the registry's server is at fault."),
		owed(UpstreamUnavailable, http.StatusServiceUnavailable, "The public DNS resolvers were unreachable.",
			"Send the same request again; the resolvers could not be reached, or did not agree."),
		owed(BootstrapUnavailable, http.StatusServiceUnavailable, "The IANA RDAP bootstrap could not be loaded.",
			"Send the same request again later; the list of the registries' servers could not be loaded."),
		owed(DNSTimeout, http.StatusGatewayTimeout, "DNS resolution timed out.",
			"Send the same request again; if the domain's name servers stay silent, their silence is the answer."),
		owed(SSLTimeout, http.StatusGatewayTimeout, "The TLS handshake timed out.",
			"Send the same request again; if the host stays silent, its silence is the answer."),
		owed(WhoisTimeout, http.StatusGatewayTimeout, "The RDAP lookup timed out.",
			"Send the same request again; the registry's server is slow."),
		owed(HeadersTimeout, http.StatusGatewayTimeout, "The HTTPS header fetch timed out.",
			"Send the same request again; if the host stays silent, its silence is the answer."),
		owed(RedirectTimeout, http.StatusGatewayTimeout, "The HTTPS redirect trace timed out.",
			"Send the same request again; if the host stays silent, its silence is the answer."),
		owed(HostIntelTimeout, http.StatusGatewayTimeout, "The host intelligence bundle timed out.",
			"Send the same request again, or make its three lookups one by one."),
		owed(UptimeCheckTimeout, http.StatusGatewayTimeout, "The uptime check bundle timed out.",
			"Send the same request again, or make its three lookups one by one."),
	}
})

// Verdict is a rule for the line that summarises an answer. The paywall page shows this line
// above the table of the answer. The page's script applies the rules of an operation, in
// order, to the JSON of the answer. It shows the line of the first rule whose condition holds.
type Verdict struct {
	// If is the condition: comparisons joined by " and ". If it is empty, the rule always
	// holds. Each comparison consists of a path into the answer, an operator (=, !=, <, >=)
	// and a value, such as "records.length = 0" or "ssl.expired = true". The value is compared
	// with the JSON at the path. A string is compared without its quotes, and an absent value
	// counts as null. The operators < and >= compare numbers. After the path of an array,
	// "length" is the number of its items and "last" is its last item. The path
	// "headers.missing" is the number of expected security headers that the host did not send.
	If string `json:"if,omitempty"`
	// Says is the text of the line. It may contain placeholders, in which path stands for a
	// path into the answer. {path} is the value at that path. {path date} is a time, written
	// like "31 December 2020". {path distance} is a time, written like "in 12 days" or "3 days
	// ago". {path list} is the items of an array, separated by commas. {path count mail
	// server} is the number of items with the noun: "1 mail server", "2 mail servers". Text
	// from strangers is put in quotes. Three placeholders show a text only if it is of the
	// expected kind, and otherwise say that it is not. {path host} shows the host of a URL.
	// {path host url} shows the host of a reference that is relative to the URL at the path
	// "url". {path name} shows a domain name.
	Says string `json:"says"`
	// Tone tells whether the line is good or bad news. It is empty for a neutral fact.
	Tone Tone `json:"tone,omitempty"`
}

// Tone tells whether the line of a Verdict is good or bad news. The tone decides the colour of
// the line on the page.
type Tone string

// The tones. For a neutral fact, the tone is empty.
const (
	Good Tone = "good"
	Warn Tone = "warn"
	Bad  Tone = "bad"
)
