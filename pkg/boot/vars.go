package boot

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Names of the environment variables (design §10).
const (
	varBaseURL              = "BASE_URL"
	varSelling              = "SELLING"
	varPayTo                = "PAY_TO"
	varFormerTerms          = "FORMER_TERMS"
	varNetwork              = "NETWORK"
	varAsset                = "USDC_ASSET"
	varAssetName            = "USDC_NAME"
	varAssetVersion         = "USDC_VERSION"
	varFacilitatorURL       = "FACILITATOR_URL"
	varFacilitatorKeyID     = "FACILITATOR_KEY_ID"
	varFacilitatorKeySecret = "FACILITATOR_KEY_SECRET"
	varFacilitatorToken     = "FACILITATOR_TOKEN"
	varFacilitatorSecret    = "FACILITATOR_SECRET_ARN"
	varFallbackURL          = "FACILITATOR_FALLBACK_URL"
	varFallbackKeyID        = "FACILITATOR_FALLBACK_KEY_ID"
	varFallbackKeySecret    = "FACILITATOR_FALLBACK_KEY_SECRET"
	varFallbackToken        = "FACILITATOR_FALLBACK_TOKEN"
	varFallbackSecret       = "FACILITATOR_FALLBACK_SECRET_ARN"
	varLedgerTable          = "LEDGER_TABLE"
	varRPCURL               = "RPC_URL"
	varResolvers            = "DNS_RESOLVERS"
	varOwnershipProofs      = "OWNERSHIP_PROOFS"
	varContact              = "CONTACT"
	varWellKnown            = "WELL_KNOWN_FILES"
	varReceiptKey           = "RECEIPT_KEY"
	varReceiptPublicKeys    = "RECEIPT_PUBLIC_KEYS"
	varLogLevel             = "LOG_LEVEL"
	varStack                = "STACK_NAME"
	varBootstrap            = "RDAP_BOOTSTRAP_URL"
	varRate                 = "RATE_LIMIT_PER_MINUTE"
	varSingle               = "CONCURRENCY_SINGLE"
	varBundle               = "CONCURRENCY_BUNDLE"
	varDuplicateWindow      = "DUPLICATE_WINDOW_SECONDS"
	varLedgerFile           = "LEDGER_FILE"
	varLocalAddr            = "LOCAL_ADDR"
)

// Variables that the platform, Go and the AWS SDKs share, read under their own
// names and never set by the template.
const (
	varCollector    = "GOGC"
	varFunction     = "AWS_LAMBDA_FUNCTION_NAME"
	varVersion      = "AWS_LAMBDA_FUNCTION_VERSION"
	varRegion       = "AWS_REGION"
	varAccessKey    = "AWS_ACCESS_KEY_ID"
	varSecretKey    = "AWS_SECRET_ACCESS_KEY"
	varSessionToken = "AWS_SESSION_TOKEN"
	varEndpoint     = "AWS_ENDPOINT_URL_DYNAMODB"

	varSecretsEndpoint = "AWS_ENDPOINT_URL_SECRETS_MANAGER"
)

// TemplateVars are the variables that the template sets, the same for every function.
func TemplateVars() []string {
	return append(SecretVars(), varBaseURL, varSelling, varPayTo, varFormerTerms, varNetwork, varAsset, varAssetName, varAssetVersion,
		varFacilitatorURL, varFacilitatorKeyID, varFacilitatorSecret, varFallbackURL, varFallbackKeyID, varFallbackSecret,
		varLedgerTable, varResolvers, varBootstrap, varRate, varSingle, varBundle, varDuplicateWindow,
		varOwnershipProofs, varReceiptPublicKeys, varContact, varWellKnown, varLogLevel, varStack)
}

// SecretVars are those of them that can hold a secret. The template empties them for
// a function that does not read them.
func SecretVars() []string {
	return []string{varRPCURL, varFacilitatorKeySecret, varFacilitatorToken, varFallbackKeySecret, varFallbackToken, varReceiptKey}
}

// LocalVars are those that only the local runner reads.
func LocalVars() []string { return []string{varLedgerFile, varLocalAddr} }

// environment reads variables and collects every fault.
type environment struct {
	get    func(string) string
	faults []error
}

func (e *environment) fault(name, format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf("%s %s", name, fmt.Sprintf(format, args...)))
}

// err is every fault in one error, a line each.
func (e *environment) err() error {
	if len(e.faults) == 0 {
		return nil
	}
	return fmt.Errorf("the configuration has %d fault(s):\n%w", len(e.faults), errors.Join(e.faults...))
}

// text reads a variable; empty means the default.
func (e *environment) text(name, fallback string) string {
	if v := strings.TrimSpace(e.get(name)); v != "" {
		return v
	}
	return fallback
}

func (e *environment) required(name, help string) string {
	v := e.text(name, "")
	if v == "" {
		e.fault(name, "is not set: %s", help)
	}
	return v
}

// origin reads a public origin: scheme and host, no path. Plain http is for
// this machine only.
func (e *environment) origin(name, fallback string) string {
	v := e.text(name, fallback)
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

func (e *environment) address(name, value string) string {
	if value == "" {
		return ""
	}
	a, err := x402.ParseAddress(value)
	switch {
	case err != nil:
		e.fault(name, "must be 0x and 40 hexadecimal digits")
	case a == x402.Address{}:
		e.fault(name, "is the zero address: what is sent there is lost")
	case value != strings.ToLower(value) && value[2:] != strings.ToUpper(value[2:]) && value != a.Checksum():
		e.fault(name, "has a wrong checksum (EIP-55): a digit or the letter case is mistyped, or copy it in lower case")
	}
	return value
}

// payee is an address that can hold money: not the token's own contract, which
// would keep it for ever.
func (e *environment) payee(name, value, asset string) string {
	if value != "" && strings.EqualFold(value, asset) {
		e.fault(name, "is the token's contract: what is sent there is lost")
	}
	return e.address(name, value)
}

func (e *environment) network(fallback string) string {
	v := e.text(varNetwork, fallback)
	if _, err := x402.ChainID(v); err != nil {
		e.fault(varNetwork, "must be a CAIP-2 id such as eip155:8453")
	}
	return v
}

func (e *environment) resolvers() []string {
	list, err := dns.ParseResolvers(e.text(varResolvers, "1.1.1.1,8.8.8.8,9.9.9.10"))
	if err != nil {
		e.fault(varResolvers, "%v", err)
	}
	return list
}

func (e *environment) level() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(e.text(varLogLevel, "info"))); err != nil {
		e.fault(varLogLevel, "must be debug, info, warn or error")
	}
	return l
}

// stack checks the deployment's name: what CloudFormation lets a stack be called.
func (e *environment) stack() string {
	v := e.text(varStack, "")
	if v != "" && !regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]{0,127}$`).MatchString(v) {
		e.fault(varStack, "must be letters, digits and hyphens, 128 at most, a letter first")
	}
	return v
}

// table checks a DynamoDB table name. The SDK would take an ARN too; the
// template gives a name.
func (e *environment) table(name string) string {
	if name != "" && !regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`).MatchString(name) {
		e.fault(varLedgerTable, "must be a DynamoDB table name")
	}
	return name
}

// number reads a count; 0 turns the limit off.
func (e *environment) number(name string, fallback int) int {
	n, err := strconv.Atoi(e.text(name, strconv.Itoa(fallback)))
	if err != nil || n < 0 || n > 1_000_000 {
		e.fault(name, "must be a number from 0 to 1000000; 0 turns the limit off")
	}
	return n
}

// duplicateWindow reads a time in whole seconds; 0 is off. It ends where the
// ledger forgets answers.
func (e *environment) duplicateWindow() time.Duration {
	n, err := strconv.Atoi(e.text(varDuplicateWindow, strconv.Itoa(defaultWindow)))
	if err != nil || n < 0 || n > int(ledger.KeptFor/time.Second) {
		e.fault(varDuplicateWindow, "must be whole seconds from 0 to %d; 0 turns the window off", int(ledger.KeptFor/time.Second))
	}
	return time.Duration(n) * time.Second
}

func (e *environment) list(name string) []string {
	var out []string
	for _, v := range strings.Split(e.get(name), ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}
