package boot

import (
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// deployedSettings returns the settings that the template sets.
func deployedSettings(v *values) []Setting {
	return []Setting{
		{
			Name:      "BASE_URL",
			Otherwise: "on Lambda the domain name of the request",
			Meaning:   "public origin, no path",
			Readers:   readByEverybody,
			parse:     into(&v.baseURL, parseOrigin),
		},
		{
			Name:    "SELLING",
			Default: "yes",
			Meaning: "`no`: paid calls answer `facilitator_misconfigured` and charge nobody; owed answers, documents, `/health` and reconcile continue, and no alarm goes off",
			Readers: readByEverybody,
			parse:   into(&v.selling, parseYes),
		},
		{
			Name:      "PAY_TO",
			Otherwise: "required on Lambda; locally a published test address",
			Meaning:   "receiving address",
			Readers:   readByEverybody,
			parse:     into(&v.payTo, parseAddress),
		},
		{
			Name:    "FORMER_TERMS",
			Meaning: "old terms that are still accepted after a [change of price or payee](#changes-while-payments-are-in-flight): the time until which they are, then `payTo=0x…` or prices such as `dns=5000`, separated by commas; `none`: they are no longer accepted",
			Readers: readByEverybody,
			parse:   into(&v.former, parseFormerTerms),
		},
		{
			Name:    "NETWORK",
			Default: x402.Base,
			Meaning: "CAIP-2; " + knownNetworks() + " set the token and the public node, and the test network also sets a public facilitator",
			Readers: readByEverybody,
			parse:   into(&v.network, parseNetwork),
		},
		{
			Name:      "USDC_ASSET",
			Otherwise: ofNetwork,
			Meaning:   "the token's contract; for another token or network, set all three",
			Readers:   readByEverybody,
			parse:     into(&v.asset, parseAddress),
		},
		{
			Name:      "USDC_NAME",
			Otherwise: ofNetwork,
			Meaning:   "name of the token's EIP-712 domain",
			Readers:   readByEverybody,
			parse:     text(&v.tokenName),
		},
		{
			Name:      "USDC_VERSION",
			Otherwise: ofNetwork,
			Meaning:   "version of that domain",
			Readers:   readByEverybody,
			parse:     text(&v.tokenVersion),
		},
		{
			Name:      "FACILITATOR_URL",
			Otherwise: "that of a known test network; else none, and locally play money",
			Meaning:   "base URL, https, or http on this machine",
			Readers:   readByPaid,
			parse:     into(&v.primary.url, parsePeer),
		},
		{
			Name:    "FACILITATOR_KEY_ID",
			Meaning: "CDP key, together with `FACILITATOR_KEY_SECRET`",
			Readers: readByPaid,
			parse:   text(&v.primary.keyID),
		},
		{
			Name:    "FACILITATOR_KEY_SECRET",
			Meaning: "its secret",
			Secret:  true,
			Readers: readByPaid,
			parse:   text(&v.primary.keySecret),
		},
		{
			Name:    "FACILITATOR_TOKEN",
			Meaning: "bearer token, instead of a CDP key",
			Secret:  true,
			Readers: readByPaid,
			parse:   text(&v.primary.token),
		},
		{
			Name:    "FACILITATOR_SECRET_ARN",
			Meaning: "instead of both: the complete ARN of a Secrets Manager secret that has either as JSON (`key_id`, `key_secret` / `token`; or only `rpc_urls` or `receipt_key`). It is read on the first paid call, and again, at most once a minute, when its contents fail (a 401, no node that answers)",
			Readers: readByPaid,
			parse:   into(&v.primary.secret, parseSecretName),
		},
		{
			Name:    "FACILITATOR_FALLBACK_URL",
			Meaning: "a second facilitator, of another operator, asked when the first one is down, turns requests away or leaves doubt",
			Readers: readByPaid,
			parse:   into(&v.fallback.url, parsePeer),
		},
		{
			Name:    "FACILITATOR_FALLBACK_KEY_ID",
			Meaning: "its credentials, in the same forms; never those of the first one",
			Readers: readByPaid,
			parse:   text(&v.fallback.keyID),
		},
		{
			Name:    "FACILITATOR_FALLBACK_KEY_SECRET",
			Meaning: "the same",
			Secret:  true,
			Readers: readByPaid,
			parse:   text(&v.fallback.keySecret),
		},
		{
			Name:    "FACILITATOR_FALLBACK_TOKEN",
			Meaning: "the same",
			Secret:  true,
			Readers: readByPaid,
			parse:   text(&v.fallback.token),
		},
		{
			Name:    "FACILITATOR_FALLBACK_SECRET_ARN",
			Meaning: "the same",
			Readers: readByPaid,
			parse:   into(&v.fallback.secret, parseSecretName),
		},
		{
			Name:      "RECEIPT_KEY",
			Otherwise: "none: no signed receipts, and `/ready` says so",
			Meaning:   "Ed25519 key that signs offers and receipts, as `make receipt-key` prints it, or `receipt_key` in the secret of `FACILITATOR_SECRET_ARN`",
			Secret:    true,
			Readers:   ReadByOthers | ReadByLocal,
			parse:     into(&v.receiptKey, receipt.ParseKey),
		},
		{
			Name:    "RECEIPT_PUBLIC_KEYS",
			Meaning: "public keys of offers and receipts for `/.well-known/did.json`, in any order; replaced keys stay, a leaked one is [removed](#changes-while-payments-are-in-flight)",
			Readers: readByEverybody,
			parse:   into(&v.receiptKeys, parseReceiptKeys),
		},
		{
			Name:      "RPC_URL",
			Otherwise: "`rpc_urls` of the secret, or else the network's public node; `none` if the facilitator is on this machine",
			Meaning:   "nodes for chain evidence over JSON-RPC (https, or http on this machine), separated by commas, five at most: each gets a share of the time, and one that is down, behind or on another chain is skipped. `secret`: only those of `rpc_urls` in the secret of `FACILITATOR_SECRET_ARN`. `none`: no node, and `/ready` says so. A payment in doubt can then stay in doubt, and a refused payer who cancels the nonce gets one free answer, because the facilitator's statement that the nonce is used counts as payment (the metric `UsedNonceCountedAsPaid`)",
			Secret:    true,
			Readers:   readByPaid,
			parse:     into(&v.nodes, parseNodes),
		},
		{
			Name:    "DUPLICATE_WINDOW_SECONDS",
			Default: "45",
			Meaning: "how long after an answer over HTTP another payment for the same request, without an `Idempotency-Key`, is the same purchase; twice as long after one over MCP; 0 turns it off",
			Readers: readByEverybody,
			parse:   into(&v.windowSeconds, countTo(int(ledger.KeptFor.Seconds()))),
		},
		{
			Name:    "RATE_LIMIT_PER_MINUTE",
			Default: "300",
			Meaning: "units a minute for one client, separately for priced requests and for free documents (with `/ready`). A request costs 1 for each started 16 KB of its answer. A request with a payment costs 5 until it is decided, then 1, or 20 if its payer can be the cause (a refusal, a doubt, a silent target); units above the limit count in the next minutes. 0 turns it off",
			Readers: readByEverybody,
			parse:   into(&v.perMinute, countTo(1_000_000)),
		},
		{
			Name:    "CONCURRENCY_SINGLE",
			Default: "50",
			Meaning: "concurrent paid lookups of one tool, of which one client can have a quarter; 0 turns the limit off",
			Readers: readByEverybody,
			parse:   into(&v.single, countTo(limit.MaxCap)),
		},
		{
			Name:    "CONCURRENCY_BUNDLE",
			Default: "20",
			Meaning: "the same for one bundle",
			Readers: readByEverybody,
			parse:   into(&v.bundle, countTo(limit.MaxCap)),
		},
		{
			Name:      "LEDGER_TABLE",
			Otherwise: "required on Lambda; locally a file",
			Meaning:   "DynamoDB table",
			Readers:   readByEverybody,
			parse:     into(&v.ledgerTable, parseTableName),
		},
		{
			Name:    "DNS_RESOLVERS",
			Default: "1.1.1.1,8.8.8.8,9.9.9.10",
			Meaning: "`ip[:port]`, comma separated; recursive. Each must echo the letter case of the question (common ones do), or every lookup is `dns_timeout` and `/ready` is 503. Name two or more, on different networks: a name that only one of them denies, without proof, is `upstream_unavailable`, and so is every name below a top-level domain that does not exist",
			Readers: readByPaid,
			parse:   into(&v.resolvers, dns.ParseResolvers),
		},
		{
			Name:      "RDAP_BOOTSTRAP_URL",
			Otherwise: "`https://data.iana.org/rdap/dns.json`",
			Meaning:   "IANA's file of registries",
			Readers:   readByPaid,
			parse:     into(&v.bootstrapURL, parseBootstrapURL),
		},
		{
			Name:    "OWNERSHIP_PROOFS",
			Meaning: "signatures of `BASE_URL` by `PAY_TO`",
			Readers: readByEverybody,
			parse:   into(&v.proofs, parseList),
		},
		{
			Name:      "CONTACT",
			Otherwise: "none: `/docs` says so, and there is no security.txt",
			Meaning:   "where you can be reached, an `https` or `mailto` URL: in the documents, `/.well-known/security.txt` and the `User-Agent` of lookups",
			Readers:   readByEverybody,
			parse:     into(&v.contact, parseContact),
		},
		{
			Name:    "WELL_KNOWN_FILES",
			Meaning: "files below `/.well-known/` that prove to indexes who owns the service, as a JSON object of names and texts of at most 2,048 bytes: `402index-verify.txt`, `x402-trust.txt`, `mcp-registry-auth`, `glama.json`",
			Readers: readByEverybody,
			parse:   into(&v.claims, parseClaims),
		},
		{
			Name:    "LOG_LEVEL",
			Default: "info",
			Meaning: "debug, info, warn, error",
			Readers: readByEverybody,
			parse:   into(&v.logLevel, parseLevel),
		},
		{
			Name:      "STACK_NAME",
			Otherwise: "none: `Hostfacts`",
			Meaning:   "metrics are stored under `Hostfacts/` and this name; set by the template",
			Readers:   readByEverybody,
			parse:     into(&v.stack, parseStackName),
		},
	}
}

// otherSettings returns the settings that Lambda sets, and the settings that are used only
// outside AWS.
func otherSettings(v *values) []Setting {
	const inAWS = readByEverybody | readByAWS
	return []Setting{
		{
			Name:    "AWS_REGION",
			Meaning: "set by Lambda; elsewhere needed with `LEDGER_TABLE` or a secret",
			Readers: inAWS,
			parse:   text(&v.region),
		},
		{
			Name:    "AWS_ACCESS_KEY_ID",
			Meaning: "set by Lambda; elsewhere needed with `LEDGER_TABLE` or a secret",
			Readers: inAWS,
			parse:   text(&v.accessKeyID),
		},
		{
			Name:    "AWS_SECRET_ACCESS_KEY",
			Meaning: "set by Lambda, and needed as its ID is",
			Readers: inAWS,
			parse:   text(&v.secretAccessKey),
		},
		{
			Name:    "AWS_SESSION_TOKEN",
			Meaning: "the same",
			Readers: inAWS,
			parse:   text(&v.sessionToken),
		},
		{
			Name:    "AWS_LAMBDA_FUNCTION_NAME",
			Meaning: "set by Lambda: what a release is judged by",
			Readers: readByEverybody,
			parse:   text(&v.function),
		},
		{
			Name:    "AWS_LAMBDA_FUNCTION_VERSION",
			Meaning: "the same",
			Readers: readByEverybody,
			parse:   text(&v.version),
		},
		{
			Name:    "AWS_ENDPOINT_URL_DYNAMODB",
			Meaning: "a local DynamoDB",
			Readers: inAWS,
			parse:   text(&v.dynamoEndpoint),
		},
		{
			Name:    "AWS_ENDPOINT_URL_SECRETS_MANAGER",
			Meaning: "a local Secrets Manager",
			Readers: readByPaid | readByAWS,
			parse:   text(&v.secretsEndpoint),
		},
		{
			Name:    "AWS_ENDPOINT_URL_STS",
			Meaning: "of the operator's commands: a local STS",
		},
		{
			Name:      "GOGC",
			Otherwise: "400",
			Meaning:   "of a function: how much the heap grows between two garbage collections, in percent of what is in use",
		},
		{
			Name:    "LEDGER_FILE",
			Default: LocalLedgerFile,
			Meaning: "of the local runner and the operator's commands: the ledger where `LEDGER_TABLE` is not set",
			Readers: ReadByLocal,
			parse:   text(&v.ledgerFile),
		},
		{
			Name:    "LEDGER_ACCEPT",
			Meaning: "for the same: the word from the message that refused a `LEDGER_FILE` because a part of it is missing; it accepts that file once",
			Readers: ReadByLocal,
			parse:   into(&v.ledgerAccept, parseAccept),
		},
		{
			Name:      "LOWEST_PRICE",
			Otherwise: "the ledger is this service's",
			Meaning:   "for the operator's commands, when the ledger belongs to another shop: the shop's lowest price in atomic units",
			Readers:   ReadByLocal,
			parse:     into(&v.lowestPrice, parseAmount),
		},
		{
			Name:    "LOCAL_ADDR",
			Default: LocalAddr,
			Meaning: "for the local runner: the address to listen on; play money takes the next port",
			Readers: ReadByLocal,
			parse:   text(&v.localAddr),
		},
	}
}
