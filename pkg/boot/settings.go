package boot

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Setting is a variable of the environment. The table of the runbook is printed from
// the list of all of them.
type Setting struct {
	Name string
	// Default is what an empty variable means, where that is a text. Otherwise is what
	// the runbook says it means.
	Default, Otherwise string
	Meaning            string // for the operator
	// Template says that the template sets it, the same for every function, and
	// Secret that it can hold a secret: the template empties that for a function that
	// does not read it.
	Template, Secret bool

	// form is a pattern of the whole value, and must what is said of another one. A bound
	// in the hundreds is most and not in the pattern: that would take a twentieth of a
	// function's start to compile.
	form, must string
	most       int // bytes; 0 is any number
}

// Defaults of the local runner.
const (
	LocalAddr       = "127.0.0.1:8402"
	LocalLedgerFile = ".local/ledger.db"
	// LocalPayTo is the second account of the well-known development mnemonic.
	// Its key is public: nothing of value may ever be paid to it.
	LocalPayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
)

// secretForm is a complete ARN. A permission on exactly this secret, and the region to
// ask in, follow from it.
const (
	secretForm = `arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}`
	secretMust = "must be the complete ARN of a Secrets Manager secret, with its six random characters at the end"
)

// ofNetwork is what the variables of the token mean when they are empty.
const ofNetwork = "that of USDC on `NETWORK`, where that is known"

// knownNetworks names the networks of which NETWORK is all that has to be said.
func knownNetworks() string {
	var names []string
	for _, n := range x402.Networks() {
		names = append(names, n.Name+" (`"+n.USDC.Network+"`)")
	}
	return strings.Join(names, " and ")
}

// Settings are all variables that the service reads.
func Settings() []Setting {
	deployed := []Setting{
		{Name: "BASE_URL", Otherwise: "on Lambda the domain name of the request", Meaning: "public origin, no path"},
		{Name: "SELLING", Default: "yes", form: `yes|no`, must: "must be yes or no",
			Meaning: "`no`: paid calls answer `facilitator_misconfigured` and charge nobody; owed answers, documents, `/health` and reconcile go on, and no alarm goes off for it"},
		{Name: "PAY_TO", Otherwise: "required on Lambda; locally a published test address", Meaning: "receiving address"},
		{Name: "FORMER_TERMS", Meaning: "what a [change of price or payee](#changes-while-payments-are-in-flight) has replaced and until when it passes: a time, and `payTo=0x…` or prices such as `dns=5000` behind it, separated by commas; `none`: it passes no more"},
		{Name: "NETWORK", Default: x402.Base, Meaning: "CAIP-2; of " + knownNetworks() + " it brings the token and the public node, and of the test network also a public facilitator"},
		{Name: "USDC_ASSET", Otherwise: ofNetwork, Meaning: "the token's contract; of another token, and on another network, all three are needed"},
		{Name: "USDC_NAME", Otherwise: ofNetwork, Meaning: "name of the token's EIP-712 domain"},
		{Name: "USDC_VERSION", Otherwise: ofNetwork, Meaning: "version of that domain"},
		{Name: "FACILITATOR_URL", Otherwise: "that of a known test network; else none, and locally play money", Meaning: "base URL, https, or http on this machine"},
		{Name: "FACILITATOR_KEY_ID", Meaning: "CDP key, together with `FACILITATOR_KEY_SECRET`"},
		{Name: "FACILITATOR_KEY_SECRET", Secret: true, Meaning: "its secret"},
		{Name: "FACILITATOR_TOKEN", Secret: true, Meaning: "bearer token, in the place of a CDP key"},
		{Name: "FACILITATOR_SECRET_ARN", form: secretForm, must: secretMust,
			Meaning: "in the place of both: the complete ARN of a Secrets Manager secret with either as JSON (`key_id`, `key_secret` / `token`; neither if all it holds is `rpc_urls` or `receipt_key`), read on the first paid call and again when what it names fails (a 401, no node that answers), at most once a minute"},
		{Name: "FACILITATOR_FALLBACK_URL", Meaning: "a second facilitator, of another operator, asked when the first one is down, turns requests away or leaves doubt"},
		{Name: "FACILITATOR_FALLBACK_KEY_ID", Meaning: "its credentials, in the same forms; never those of the first one"},
		{Name: "FACILITATOR_FALLBACK_KEY_SECRET", Secret: true, Meaning: "the same"},
		{Name: "FACILITATOR_FALLBACK_TOKEN", Secret: true, Meaning: "the same"},
		{Name: "FACILITATOR_FALLBACK_SECRET_ARN", form: secretForm, must: secretMust, Meaning: "the same"},
		{Name: "RECEIPT_KEY", Secret: true, Otherwise: "none: no signed receipts, and `/ready` says so",
			Meaning: "Ed25519 key that signs offers and receipts, as `make receipt-key` prints it, or `receipt_key` in the secret of `FACILITATOR_SECRET_ARN`"},
		{Name: "RECEIPT_PUBLIC_KEYS", Meaning: "public keys of offers and receipts for `/.well-known/did.json`, a set: their order means nothing; replaced ones stay, a leaked one is [taken out](#changes-while-payments-are-in-flight)"},
		{Name: "RPC_URL", Secret: true, Otherwise: "`rpc_urls` of the secret, or else the network's public node; `none` where the facilitator is on this machine",
			Meaning: "nodes for chain evidence over JSON-RPC (https, or http on this machine), separated by commas, five at most: each is asked within its share of the time, and one that is down, behind or on another chain is passed over. `secret`: those of `rpc_urls` in the secret of `FACILITATOR_SECRET_ARN` and no others. `none` turns it off, and `/ready` says so: a payment in doubt can then stay in doubt, and a refused payer who cancels the nonce gets one answer free, because the facilitator's word that it is used counts as paid (the metric `UsedNonceCountedAsPaid`)"},
		{Name: "DUPLICATE_WINDOW_SECONDS", Default: "45", Meaning: "how long after an answer over HTTP another payment for the same request, without an `Idempotency-Key`, is the same purchase; twice as long after one over MCP; 0 is off"},
		{Name: "RATE_LIMIT_PER_MINUTE", Default: "300", Meaning: "units of one client, of priced requests and of free documents (with `/ready`) apart; a request is 1 for each started 16 KB of its answer, one with a payment 5 until it is decided, then 1, or 20 where its payer can be the cause (a refusal, a doubt, a silent target), and what that is above the limit counts in the next minutes; 0 is off"},
		{Name: "CONCURRENCY_SINGLE", Default: "50", Meaning: "paid lookups at once of one tool, at most a quarter of them one client's; 0 is off"},
		{Name: "CONCURRENCY_BUNDLE", Default: "20", Meaning: "the same of one bundle"},
		{Name: "LEDGER_TABLE", Otherwise: "required on Lambda; locally a file", form: `[a-zA-Z0-9_.-]{3,}`, most: 255, must: "must be a DynamoDB table name", Meaning: "DynamoDB table"},
		{Name: "DNS_RESOLVERS", Default: "1.1.1.1,8.8.8.8,9.9.9.10", Meaning: "`ip[:port]`, comma separated; recursive, and each must echo the letter case of the question (the common ones do), else every lookup is `dns_timeout` and `/ready` 503. Two or more, on different networks: what one alone denies without proof is `upstream_unavailable`, and so is every name of a top-level domain that does not exist"},
		{Name: "RDAP_BOOTSTRAP_URL", Otherwise: "`https://data.iana.org/rdap/dns.json`", Meaning: "IANA's file of registries"},
		{Name: "OWNERSHIP_PROOFS", Meaning: "signatures of `BASE_URL` by `PAY_TO`"},
		{Name: "CONTACT", Otherwise: "none: `/docs` says so, and there is no security.txt", Meaning: "where you can be reached, an `https` or `mailto` URL: in the documents, `/.well-known/security.txt` and the `User-Agent` of lookups"},
		{Name: "WELL_KNOWN_FILES", Meaning: "files below `/.well-known/` by which indexes find out whose the service is, a JSON object of names and texts of at most 2,048 bytes: `402index-verify.txt`, `x402-trust.txt`, `mcp-registry-auth`, `glama.json`"},
		{Name: "LOG_LEVEL", Default: "info", form: `(?i)debug|info|warn|error`, must: "must be debug, info, warn or error", Meaning: "debug, info, warn, error"},
		{Name: "STACK_NAME", Otherwise: "none: `Hostfacts`", form: `[a-zA-Z][a-zA-Z0-9-]*`, most: 128, must: "must be letters, digits and hyphens, 128 at most, a letter first",
			Meaning: "metrics are kept under `Hostfacts/` and this name; the template sets it"},
	}
	for i := range deployed {
		deployed[i].Template = true
	}
	return append(deployed, []Setting{
		{Name: "AWS_REGION", Meaning: "set by Lambda; elsewhere needed with `LEDGER_TABLE` or a secret"},
		{Name: "AWS_ACCESS_KEY_ID", Meaning: "set by Lambda; elsewhere needed with `LEDGER_TABLE` or a secret"},
		{Name: "AWS_SECRET_ACCESS_KEY", Meaning: "set by Lambda, and needed as its ID is"},
		{Name: "AWS_SESSION_TOKEN", Meaning: "the same"},
		{Name: "AWS_LAMBDA_FUNCTION_NAME", Meaning: "set by Lambda: what a release is judged by"},
		{Name: "AWS_LAMBDA_FUNCTION_VERSION", Meaning: "the same"},
		{Name: "AWS_ENDPOINT_URL_DYNAMODB", Meaning: "a local DynamoDB"},
		{Name: "AWS_ENDPOINT_URL_SECRETS_MANAGER", Meaning: "a local Secrets Manager"},
		{Name: "AWS_ENDPOINT_URL_STS", Meaning: "of the operator's commands: a local STS"},
		{Name: "GOGC", Otherwise: "400", Meaning: "of a function: how much the heap grows between two garbage collections, in percent of what is in use"},
		{Name: "LEDGER_FILE", Default: LocalLedgerFile, Meaning: "of the local runner and the operator's commands: the ledger where `LEDGER_TABLE` is not set"},
		{Name: "LEDGER_ACCEPT", form: `[A-Z2-7]{8}`, must: "must be the word that the program has named when it refused the ledger file",
			Meaning: "of the same: accepts a `LEDGER_FILE` that was refused because a part of it is missing, by the word that the refusal names; good for that file once"},
		{Name: "LOWEST_PRICE", Otherwise: "the ledger is this service's", form: `[1-9][0-9]{0,17}`, must: "must be atomic units, such as 5000",
			Meaning: "of the operator's commands: what they look at is the ledger of another shop, which sells nothing for less than so many atomic units"},
		{Name: "LOCAL_ADDR", Default: LocalAddr, Meaning: "of the local runner: where it listens; play money takes the port after it"},
	}...)
}

// environment reads variables and collects every fault.
type environment struct {
	get      func(string) string
	settings []Setting
	faults   []string
}

// fault notes what is wrong with a variable.
func (e *environment) fault(name, format string, args ...any) {
	e.faults = append(e.faults, name+" "+fmt.Sprintf(format, args...))
}

// err is every fault in one error, a line each, once however often the variable was read.
func (e *environment) err() error {
	slices.Sort(e.faults)
	faults := slices.Compact(e.faults)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("the configuration has %d fault(s):\n%s", len(faults), strings.Join(faults, "\n"))
}

func (e *environment) setting(name string) Setting {
	return e.settings[slices.IndexFunc(e.settings, func(s Setting) bool { return s.Name == name })]
}

// text reads a variable; an empty or blank one is its default. One that does not have
// its form is a fault. A variable that is not in the list panics.
func (e *environment) text(name string) string {
	s := e.setting(name)
	v := strings.TrimSpace(e.get(name))
	if v == "" {
		return s.Default
	}
	if s.form != "" && (s.most > 0 && len(v) > s.most || !regexp.MustCompile(`^(?:`+s.form+`)$`).MatchString(v)) {
		e.fault(name, "%s", s.must)
	}
	return v
}

// required is text, of which nothing is a fault.
func (e *environment) required(name string) string {
	v := e.text(name)
	if v == "" {
		e.fault(name, "is not set: %s", e.setting(name).Meaning)
	}
	return v
}

// parsed reads a variable with a function whose error says what is wrong with it. Nothing
// is the zero value.
func parsed[T any](e *environment, name string, parse func(string) (T, error)) (v T) {
	text := e.text(name)
	if text == "" {
		return v
	}
	v, err := parse(text)
	if err != nil {
		e.fault(name, "%v", err)
	}
	return v
}

// number reads a count; 0 turns something off.
func (e *environment) number(name string, most int) int {
	return parsed(e, name, func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > most {
			return 0, fmt.Errorf("must be a whole number from 0 to %d; 0 turns it off", most)
		}
		return n, nil
	})
}

// list reads what is separated by commas.
func (e *environment) list(name string) []string { return listed(e.text(name)) }

func listed(text string) (all []string) {
	for v := range strings.SplitSeq(text, ",") {
		if v = strings.TrimSpace(v); v != "" {
			all = append(all, v)
		}
	}
	return all
}
