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
			Otherwise: "on Lambda, the domain name of the request",
			Meaning:   "public origin, without a path",
			Readers:   readByEverybody,
			parse:     parseInto(&v.baseURL, parseOrigin),
		},
		{
			Name:    "SELLING",
			Default: "yes",
			Meaning: "`no`: paid calls answer `facilitator_misconfigured` and charge nobody; owed answers, documents, `/health` and reconcile continue, and no alarm goes off",
			Readers: readByEverybody,
			parse:   parseInto(&v.selling, parseYes),
		},
		{
			Name:      "PAY_TO",
			Otherwise: "required on Lambda; locally, a published test address",
			Meaning:   "address that receives the payments",
			Readers:   readByEverybody,
			parse:     parseInto(&v.payTo, parseAddress),
		},
		{
			Name:    "FORMER_TERMS",
			Meaning: "old terms that are still accepted after a [change of price or payee](#changes-while-payments-are-in-flight): first the time until which they are accepted, then `payTo=0x…` or prices such as `dns=5000`, separated by commas. `none`: old terms are no longer accepted",
			Readers: readByEverybody,
			parse:   parseInto(&v.former, parseFormerTerms),
		},
		{
			Name:    "NETWORK",
			Default: x402.Base,
			Meaning: "CAIP-2 id of the chain. " + knownNetworks() + " set the token and the public node; the test network also sets a public facilitator",
			Readers: readByEverybody,
			parse:   parseInto(&v.network, parseNetwork),
		},
		{
			Name:      "USDC_ASSET",
			Otherwise: defaultOfNetwork,
			Meaning:   "address of the token's contract; for another token or network, also set `USDC_NAME` and `USDC_VERSION`",
			Readers:   readByEverybody,
			parse:     parseInto(&v.asset, parseAddress),
		},
		{
			Name:      "USDC_NAME",
			Otherwise: defaultOfNetwork,
			Meaning:   "name of the token's EIP-712 domain",
			Readers:   readByEverybody,
			parse:     keepText(&v.tokenName),
		},
		{
			Name:      "USDC_VERSION",
			Otherwise: defaultOfNetwork,
			Meaning:   "version of that EIP-712 domain",
			Readers:   readByEverybody,
			parse:     keepText(&v.tokenVersion),
		},
		{
			Name:      "FACILITATOR_URL",
			Otherwise: "on a known test network, the facilitator of that network; on another network none; the local runner then takes play money",
			Meaning:   "base URL of the facilitator: https, or http if it is on this machine",
			Readers:   readByPaid,
			parse:     parseInto(&v.primary.url, parsePeer),
		},
		{
			Name:    "FACILITATOR_KEY_ID",
			Meaning: "id of a CDP key, together with `FACILITATOR_KEY_SECRET`",
			Readers: readByPaid,
			parse:   keepText(&v.primary.keyID),
		},
		{
			Name:    "FACILITATOR_KEY_SECRET",
			Meaning: "secret of the same key",
			Secret:  true,
			Readers: readByPaid,
			parse:   keepText(&v.primary.keySecret),
		},
		{
			Name:    "FACILITATOR_TOKEN",
			Meaning: "bearer token, instead of a CDP key",
			Secret:  true,
			Readers: readByPaid,
			parse:   keepText(&v.primary.token),
		},
		{
			Name:    "FACILITATOR_SECRET_ARN",
			Meaning: "complete ARN of a Secrets Manager secret, to use instead of the variables for a CDP key or a token. The secret is JSON with the credentials as its members `key_id` and `key_secret`, or `token`. It can also have `rpc_urls` and `receipt_key`; if the facilitator needs no credentials, the secret has only these members, or one of them. The secret is read on the first paid call, and again, at most once a minute, if its contents do not work (the facilitator answers 401, or no node answers)",
			Readers: readByPaid,
			parse:   parseInto(&v.primary.secret, parseSecretName),
		},
		{
			Name:    "FACILITATOR_FALLBACK_URL",
			Meaning: "base URL of a second facilitator, which another operator runs. It is asked when the first one is down, turns requests away or leaves a payment in doubt",
			Readers: readByPaid,
			parse:   parseInto(&v.fallback.url, parsePeer),
		},
		{
			Name:    "FACILITATOR_FALLBACK_KEY_ID",
			Meaning: "credentials of the second facilitator, in the same forms as the first one's, but with other values",
			Readers: readByPaid,
			parse:   keepText(&v.fallback.keyID),
		},
		{
			Name:    "FACILITATOR_FALLBACK_KEY_SECRET",
			Meaning: "the same",
			Secret:  true,
			Readers: readByPaid,
			parse:   keepText(&v.fallback.keySecret),
		},
		{
			Name:    "FACILITATOR_FALLBACK_TOKEN",
			Meaning: "the same",
			Secret:  true,
			Readers: readByPaid,
			parse:   keepText(&v.fallback.token),
		},
		{
			Name:    "FACILITATOR_FALLBACK_SECRET_ARN",
			Meaning: "the same",
			Readers: readByPaid,
			parse:   parseInto(&v.fallback.secret, parseSecretName),
		},
		{
			Name:      "RECEIPT_KEY",
			Otherwise: "none: no signed receipts, and `/ready` says so",
			Meaning:   "Ed25519 key that signs offers and receipts, as `make receipt-key` prints it. The key can also be `receipt_key` in the secret of `FACILITATOR_SECRET_ARN`",
			Secret:    true,
			Readers:   ReadByOthers | ReadByLocal,
			parse:     parseInto(&v.receiptKey, receipt.ParseKey),
		},
		{
			Name:    "RECEIPT_PUBLIC_KEYS",
			Meaning: "public keys that check the signatures of offers and receipts, in any order; `/.well-known/did.json` publishes them. Keep replaced keys, and [remove](#changes-while-payments-are-in-flight) a leaked one",
			Readers: readByEverybody,
			parse:   parseInto(&v.receiptKeys, parseReceiptKeys),
		},
		{
			Name:      "RPC_URL",
			Otherwise: "`rpc_urls` of the secret, or else the network's public node; `none` if the facilitator is on this machine",
			Meaning:   "URLs of the nodes that are asked over JSON-RPC whether a payment was made (https, or http on this machine), separated by commas, at most five. Each node gets a share of the time for an answer; a node that is down, behind or on another chain is skipped. `secret`: only the nodes of `rpc_urls` in the secret of `FACILITATOR_SECRET_ARN`. `none`: no node, and `/ready` says so. Without a node, a payment in doubt can stay in doubt. And if the facilitator then says that the nonce is used, the payment counts as made, because nobody can check: a payer who was refused can cancel the nonce and get one free answer (counted by the metric `UsedNonceCountedAsPaid`)",
			Secret:    true,
			Readers:   readByPaid,
			parse:     parseInto(&v.nodes, parseNodes),
		},
		{
			Name:    "DUPLICATE_WINDOW_SECONDS",
			Default: "45",
			Meaning: "length of the duplicate window, which begins with an answer over HTTP. Within this window, another payment by the same payer for the same request, without an `Idempotency-Key`, counts as the same purchase and is not charged. After an answer over MCP, the window is twice as long. 0 turns the window off",
			Readers: readByEverybody,
			parse:   parseInto(&v.windowSeconds, countParser(int(ledger.KeptFor.Seconds()))),
		},
		{
			Name:    "RATE_LIMIT_PER_MINUTE",
			Default: "300",
			Meaning: "units a minute for one client, counted separately for priced requests and for free documents (`/ready` counts as a document). A request costs one unit per 16 KB of its answer, rounded up. A request with a payment costs 5 units until the payment is decided. Then it costs 1 unit, or 20 if the payer can be the cause of the outcome (a refusal, a payment in doubt, a silent target). Units above the limit count against the following minutes. 0 turns the limit off",
			Readers: readByEverybody,
			parse:   parseInto(&v.perMinute, countParser(1_000_000)),
		},
		{
			Name:    "CONCURRENCY_SINGLE",
			Default: "50",
			Meaning: "paid lookups of one tool that can run at once; one client can use a quarter of them. 0 turns the limit off",
			Readers: readByEverybody,
			parse:   parseInto(&v.single, countParser(limit.MaxCap)),
		},
		{
			Name:    "CONCURRENCY_BUNDLE",
			Default: "20",
			Meaning: "the same for one bundle",
			Readers: readByEverybody,
			parse:   parseInto(&v.bundle, countParser(limit.MaxCap)),
		},
		{
			Name:      "LEDGER_TABLE",
			Otherwise: "required on Lambda; locally, a file is used",
			Meaning:   "name of the ledger's DynamoDB table",
			Readers:   readByEverybody,
			parse:     parseInto(&v.ledgerTable, parseTableName),
		},
		{
			Name:    "DNS_RESOLVERS",
			Default: "1.1.1.1,8.8.8.8,9.9.9.10",
			Meaning: "recursive resolvers, as `ip[:port]`, separated by commas. Each must echo the letter case of the question (common ones do); otherwise every lookup answers `dns_timeout`, and `/ready` answers 503. Name two or more, on different networks. If only one resolver says that a name does not exist, and gives no proof, the lookup fails with `upstream_unavailable`. With a single resolver, every lookup of a name whose top-level domain does not exist fails in this way",
			Readers: readByPaid,
			parse:   parseInto(&v.resolvers, dns.ParseResolvers),
		},
		{
			Name:      "RDAP_BOOTSTRAP_URL",
			Otherwise: "`https://data.iana.org/rdap/dns.json`",
			Meaning:   "URL of IANA's list of registries",
			Readers:   readByPaid,
			parse:     parseInto(&v.bootstrapURL, parseBootstrapURL),
		},
		{
			Name:    "OWNERSHIP_PROOFS",
			Meaning: "signatures of `BASE_URL` by `PAY_TO`, as `make sign-origin` prints them",
			Readers: readByEverybody,
			parse:   parseInto(&v.proofs, parseList),
		},
		{
			Name:      "CONTACT",
			Otherwise: "none: `/docs` says so, and there is no security.txt",
			Meaning:   "where you can be reached, as an `https` or `mailto` URL. It appears in the documents, in `/.well-known/security.txt` and in the `User-Agent` of lookups",
			Readers:   readByEverybody,
			parse:     parseInto(&v.contact, parseContact),
		},
		{
			Name:    "WELL_KNOWN_FILES",
			Meaning: "files below `/.well-known/` that prove to indexes who owns the service, as a JSON object of file names and texts, at most 2,048 bytes long. The files can be named `402index-verify.txt`, `x402-trust.txt`, `mcp-registry-auth` and `glama.json`",
			Readers: readByEverybody,
			parse:   parseInto(&v.claims, parseClaims),
		},
		{
			Name:    "LOG_LEVEL",
			Default: "info",
			Meaning: "least severe level that is logged: debug, info, warn or error",
			Readers: readByEverybody,
			parse:   parseInto(&v.logLevel, parseLevel),
		},
		{
			Name:      "STACK_NAME",
			Otherwise: "none: metrics are stored under `Hostfacts`",
			Meaning:   "name of the stack, set by the template; metrics are stored under `Hostfacts/` and this name",
			Readers:   readByEverybody,
			parse:     parseInto(&v.stack, parseStackName),
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
			parse:   keepText(&v.region),
		},
		{
			Name:    "AWS_ACCESS_KEY_ID",
			Meaning: "set by Lambda; elsewhere needed with `LEDGER_TABLE` or a secret",
			Readers: inAWS,
			parse:   keepText(&v.accessKeyID),
		},
		{
			Name:    "AWS_SECRET_ACCESS_KEY",
			Meaning: "set by Lambda; elsewhere needed together with `AWS_ACCESS_KEY_ID`",
			Readers: inAWS,
			parse:   keepText(&v.secretAccessKey),
		},
		{
			Name:    "AWS_SESSION_TOKEN",
			Meaning: "set by Lambda; elsewhere needed with temporary credentials",
			Readers: inAWS,
			parse:   keepText(&v.sessionToken),
		},
		{
			Name:    "AWS_LAMBDA_FUNCTION_NAME",
			Meaning: "set by Lambda; name and version identify the release in the log",
			Readers: readByEverybody,
			parse:   keepText(&v.function),
		},
		{
			Name:    "AWS_LAMBDA_FUNCTION_VERSION",
			Meaning: "the same",
			Readers: readByEverybody,
			parse:   keepText(&v.version),
		},
		{
			Name:    "AWS_ENDPOINT_URL_DYNAMODB",
			Meaning: "URL of a local DynamoDB",
			Readers: inAWS,
			parse:   keepText(&v.dynamoEndpoint),
		},
		{
			Name:    "AWS_ENDPOINT_URL_SECRETS_MANAGER",
			Meaning: "URL of a local Secrets Manager",
			Readers: readByPaid | readByAWS,
			parse:   keepText(&v.secretsEndpoint),
		},
		{
			Name:    "AWS_ENDPOINT_URL_STS",
			Meaning: "for the operator's commands: URL of a local STS",
		},
		{
			Name:      "GOGC",
			Otherwise: "400",
			Meaning:   "for a function: how much the heap grows between two garbage collections, in percent of the heap in use",
		},
		{
			Name:    "LEDGER_FILE",
			Default: LocalLedgerFile,
			Meaning: "for the local runner and the operator's commands: the ledger file, if `LEDGER_TABLE` is not set",
			Readers: ReadByLocal,
			parse:   keepText(&v.ledgerFile),
		},
		{
			Name:    "LEDGER_ACCEPT",
			Meaning: "for the local runner and the operator's commands: accepts, once, a `LEDGER_FILE` that was refused because a part of it is missing. The value is the word that the error message names",
			Readers: ReadByLocal,
			parse:   parseInto(&v.ledgerAccept, parseAccept),
		},
		{
			Name:      "LOWEST_PRICE",
			Otherwise: "the ledger is this service's",
			Meaning:   "for the operator's commands, when the ledger belongs to another shop: the shop's lowest price in atomic units",
			Readers:   ReadByLocal,
			parse:     parseInto(&v.lowestPrice, parseAmount),
		},
		{
			Name:    "LOCAL_ADDR",
			Default: LocalAddr,
			Meaning: "for the local runner: the address to listen on; play money uses the next port",
			Readers: ReadByLocal,
			parse:   keepText(&v.localAddr),
		},
	}
}
