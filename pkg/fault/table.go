package fault

import (
	"net/http"
	"sync"
	"time"
)

// table is spec §7 with the class of each code (design: which outcomes use up
// a payment). It is made once, because every answer looks a code up; no caller
// outside this package gets it.
var table = sync.OnceValue(func() []Info {
	const soon = time.Second
	return []Info{
		{PaymentRequired, http.StatusPaymentRequired, "Payment required: decode the PAYMENT-REQUIRED header, sign one of its accepts, and repeat the request with PAYMENT-SIGNATURE.", Standing, false, 0},
		{PaymentInProgress, http.StatusConflict, "A payment for this request is already being settled. Retry with the same PAYMENT-SIGNATURE after Retry-After.", Standing, true, 2 * soon},
		{RateLimited, http.StatusTooManyRequests, "Too many requests from this client. Retry after Retry-After.", Standing, true, 60 * soon},
		{SettlementUncertain, http.StatusServiceUnavailable, "Settlement is not confirmed yet. Retry with the same PAYMENT-SIGNATURE; it is never charged twice.", Standing, true, 5 * soon},
		{FacilitatorUnavailable, http.StatusServiceUnavailable, "The payment facilitator is unavailable. Repeat the request unchanged.", Standing, true, 5 * soon},
		{FacilitatorMisconfigured, http.StatusServiceUnavailable, "The payment facilitator is not configured on this deployment.", Standing, true, 60 * soon},
		{FacilitatorUnauthorized, http.StatusServiceUnavailable, "The payment facilitator rejected this deployment's credentials.", Standing, true, 60 * soon},
		{LedgerUnavailable, http.StatusServiceUnavailable, "The payment ledger is unavailable. Repeat the request unchanged.", Standing, true, 2 * soon},
		{PaymentUnavailable, http.StatusServiceUnavailable, "Payment processing is unavailable. Repeat the request unchanged.", Standing, true, 30 * soon},
		{Overloaded, http.StatusServiceUnavailable, "The concurrency cap of this tool is reached. Repeat the request unchanged.", Standing, true, soon},

		{InvalidDomain, http.StatusBadRequest, "domain must be one public fully-qualified domain name, such as example.com.", Standing, false, 0},
		{InvalidType, http.StatusBadRequest, "The record type must be one of A, AAAA, MX, TXT, CNAME, NS, SOA.", Standing, false, 0},
		{InvalidPort, http.StatusBadRequest, "port must be 443.", Standing, false, 0},
		{BlockedAddress, http.StatusBadRequest, "The domain resolves to a private, loopback or metadata address.", Answer, false, 0},

		{NXDomain, http.StatusNotFound, "The domain name does not exist.", Answer, false, 0},
		{RDAPUnavailable, http.StatusNotFound, "The top-level domain has no RDAP server in the IANA bootstrap.", Answer, false, 0},
		{NotFound, http.StatusNotFound, "The registry has no registration object for the domain.", Answer, false, 0},
		{ConnectFailed, http.StatusBadGateway, "The TCP connection to the host failed.", Answer, false, 0},
		{HandshakeFailed, http.StatusBadGateway, "The TLS handshake failed.", Answer, false, 0},
		{HTTPFailed, http.StatusBadGateway, "The HTTPS request failed after the connection was made.", Answer, false, 0},
		{RDAPUpstream, http.StatusBadGateway, "The RDAP server returned an unusable response.", Owed, true, soon},
		{UpstreamUnavailable, http.StatusServiceUnavailable, "The public DNS resolvers were unreachable.", Owed, true, soon},
		{BootstrapUnavailable, http.StatusServiceUnavailable, "The IANA RDAP bootstrap could not be loaded.", Owed, true, soon},
		{DNSTimeout, http.StatusGatewayTimeout, "DNS resolution timed out.", Owed, true, soon},
		{SSLTimeout, http.StatusGatewayTimeout, "The TLS handshake timed out.", Owed, true, soon},
		{WhoisTimeout, http.StatusGatewayTimeout, "The RDAP lookup timed out.", Owed, true, soon},
		{HeadersTimeout, http.StatusGatewayTimeout, "The HTTPS header fetch timed out.", Owed, true, soon},
		{RedirectTimeout, http.StatusGatewayTimeout, "The HTTPS redirect trace timed out.", Owed, true, soon},
		{HostIntelTimeout, http.StatusGatewayTimeout, "The host intelligence bundle timed out.", Owed, true, soon},
		{UptimeCheckTimeout, http.StatusGatewayTimeout, "The uptime check bundle timed out.", Owed, true, soon},

		{InternalError, http.StatusInternalServerError, "Internal error. Nothing you sent caused it; retry with the same PAYMENT-SIGNATURE if you sent one.", Owed, true, soon},
		{UnknownPath, http.StatusNotFound, "No such path. The catalog is at /v1/catalog and the documentation at /docs.", Standing, false, 0},
		{MethodNotAllowed, http.StatusMethodNotAllowed, "This path does not take that method.", Standing, false, 0},
		{IdempotencyConflict, http.StatusConflict, "This idempotency key names another request, or this signature was first sent with another key or with none. Repeat the request as it was first sent, or sign anew with a key that no other request has used.", Standing, false, 0},
		{InvalidIdempotencyKey, http.StatusBadRequest, "An idempotency key is 1 to 255 visible ASCII characters, sent once; an id of payment-identifier is 16 to 128 letters, digits, _ and -.", Standing, false, 0},
		{InvalidArguments, http.StatusBadRequest, "The tool does not take these arguments. Its input schema says which it takes.", Standing, false, 0},
	}
})
