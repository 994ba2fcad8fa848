package facilitator

import (
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// meaning says what a reason means for a payment.
type meaning int

const (
	// doubt: the reason can be given after a broadcast, or says nothing about the payer. doubt
	// is the zero value, because every reason that is not in the table has this meaning.
	doubt meaning = iota
	// refusal: the reason is about the payer, and is given before any broadcast.
	refusal
	// expired: the facilitator refuses the payment because the authorization's window is over.
	// Facilitators check the window before the nonce, so the nonce may have been used.
	expired
	// nonceUsed: the authorization was used or cancelled on chain, by the payer or by somebody
	// else.
	nonceUsed
	// pending: a transaction was broadcast, and the facilitator awaits its receipt.
	pending
	// turnedAway: the facilitator did not process the request, and broadcast nothing, for a
	// reason that the operator has to deal with.
	turnedAway
)

// reason is a row of the table of reasons: one meaning, and the strings (words) with which
// facilitators express it.
type reason struct {
	meaning meaning
	// signature says that the refusal is about the payment's signature.
	signature bool
	// answer is the code of the fault that the seller returns if the request was turned away.
	// facilitator_unauthorized becomes facilitator_misconfigured if no credentials are
	// configured.
	answer fault.Code
	words  []string // matched exactly; with meaning doubt, a final * matches any ending
}

// reasons returns the table of the reasons that facilitators give, for both /settle and
// /verify. The file reasons.md names the source of each reason. A reason that is not in the
// table means doubt, because facilitators also give other reasons at the time of the
// broadcast. There is one exception: if the HTTP status says that the request was turned away,
// a reason that is not in the table means the same as the status.
//
// The first rows are the closed list of refusals about the payer. The next rows are for the
// operator to deal with: credentials, quota, configuration, and what this service itself puts
// into the request. Some of their reasons say that the payment differs from the terms. But
// this service checked the payment against the same terms before it sent the payment. So
// either this service sent something other than what the payer signed, or the facilitator
// reads the terms differently. The last row has known reasons that prove nothing. They mean
// doubt with every status, even with one that says that the request was turned away.
func reasons() []reason {
	return []reason{
		{meaning: refusal, words: []string{
			"insufficient_funds", "invalid_exact_evm_insufficient_balance",
			"invalid_exact_evm_insufficient_funds", "invalid_exact_evm_payload_authorization_valid_after",
			"invalid_exact_evm_transaction_simulation_failed",
			"invalid_exact_evm_payload_undeployed_smart_wallet", "eip6492_factory_not_allowed",
			"self_send_not_allowed", "kyt_risk_detected",
			"invalid_exact_evm_payload_authorization_from_address_kyt",
		}},
		{meaning: refusal, signature: true, words: []string{
			"invalid_exact_evm_payload_signature", "invalid_exact_evm_signature",
			"invalid_exact_evm_signature_format", "invalid_exact_evm_failed_to_parse_signature",
			"invalid_exact_evm_payload_signature_address",
			"invalid_exact_evm_payload_authorization_typed_data_message",
		}},
		{meaning: expired, words: []string{
			"invalid_exact_evm_payload_authorization_valid_before",
		}},
		{meaning: nonceUsed, words: []string{
			"invalid_exact_evm_nonce_already_used",
		}},
		{meaning: turnedAway, answer: fault.FacilitatorUnauthorized, words: []string{
			"unauthorized", "forbidden", "invalid_api_key", "missing_api_key", "api_key_disabled",
			"authentication_required", "seller_not_allowed", "request_blocked_by_location",
		}},
		{meaning: turnedAway, answer: fault.FacilitatorUnavailable, words: []string{
			"rate_limit_exceeded", "rate_limited", "too_many_requests", "quota_exceeded",
		}},
		{meaning: turnedAway, answer: fault.FacilitatorMisconfigured, words: []string{
			"invalid_request", "invalid_network", "invalid_scheme", "unsupported_scheme",
			"invalid_x402_version", "invalid_payment_requirements",
			"invalid_exact_evm_payload_recipient_mismatch",
			"invalid_exact_evm_payload_authorization_value_mismatch", "invalid_exact_evm_scheme",
			"invalid_exact_evm_network_mismatch", "invalid_exact_evm_missing_eip712_domain",
			"invalid_exact_evm_recipient_mismatch", "invalid_exact_evm_authorization_value",
			"invalid_exact_evm_token_name_mismatch", "invalid_exact_evm_token_version_mismatch",
			"invalid_exact_evm_eip3009_not_supported", "asset_not_deployed_contract",
			"unsupported_payload_type", "invalid_exact_evm_payload_missing_signature",
			"invalid_exact_evm_failed_to_get_network_config", "invalid_exact_evm_required_amount",
			"unsupported_network", "network_mismatch", "scheme_mismatch", "no_facilitator_for_network",
			"no_facilitator", "invalid_version", "invalid_v2_payload", "invalid_v2_requirements",
			"amount_too_low", "invalid_amount", "invalid_exact_evm_payload_authorization_value",
			"invalid_exact_evm_payload_authorization_value_too_low", "unsupported_asset",
			"invalid_bazaar_extension", "invalid_exact_evm_unsupported_scheme",
			"invalid_exact_evm_extra_field", "invalid_exact_evm_payload_authorization_to_address_kyt",
		}},
		{meaning: pending, words: []string{
			"settlement_pending", "settle_exact_evm_transaction_confirmation_timed_out",
		}},
		{words: []string{
			"invalid_transaction_state", "unexpected_settle_error", "invalid_exact_evm_transaction_failed",
			"invalid_exact_evm_transfer_event_mismatch", "invalid_exact_evm_failed_to_execute_transfer",
			"invalid_exact_evm_failed_to_get_receipt", "smart_wallet_deployment_failed",
			"duplicate_settlement", "settle_exact_node_failure", "settle_exact_failed_onchain",
			"invalid_exact_evm_transaction_state", "credential_bound_elsewhere", "settlement_failed",
			"invalid_response", "internal_server_error", "bad_gateway", "service_unavailable",
			"endpoint_unavailable", "timed_out", "idempotency_error", "settlement_error", "settle_failed",
			"settle_error", "rpc_error", "relayer_error", "network_error", "facilitator_error", "tx_failed",
			"transaction_reverted", "nonce_too_low", "replacement_underpriced",
			"authorization_is_used_or_canceled", "nonce_already_consumed", "invalid_payload",
			"invalid_exact_evm_payload", "unknown_error", "preflight_validation_failed",
			"unexpected_verify_error", "invalid_exact_evm_failed_to_check_nonce",
			"invalid_exact_evm_failed_to_get_balance", "invalid_exact_evm_failed_to_verify_signature",
			"invalid_exact_evm_verification_failed", "invalid_exact_evm_failed_to_check_deployment",
			"Payment required", "No matching payment requirements", "extension_echo_mismatch",
			"invalid_payment", "payment_required", "signature_invalid", "payment_expired",
			"failed_to_marshal_payload", "failed_to_marshal_requirements", "invalid_settlement_override",
			"permit2_*", "invalid_permit2_*", "erc20_approval_*",
			"invalid_erc20_approval_extension_format", "invalid_eip2612_extension_format",
		}},
	}
}

// findReason returns the row of the table that has a word, and reports whether there is such a
// row.
func findReason(word string) (reason, bool) {
	for _, r := range reasons() {
		for _, listed := range r.words {
			if covers(listed, word) {
				return r, true
			}
		}
	}
	return reason{}, false
}

// covers reports whether an entry of a row covers a word. An entry that ends with * covers
// every word that begins with the rest of the entry.
func covers(entry, word string) bool {
	prefix, many := strings.CutSuffix(entry, "*")
	if many {
		return entry == word || strings.HasPrefix(word, prefix)
	}
	return entry == word
}

// aboutPayer reports whether the table lists a word as a refusal about the payer. The status
// does not matter. A used nonce is not such a refusal.
func aboutPayer(word string) bool {
	r, _ := findReason(word)
	return r.meaning == refusal || r.meaning == expired
}

// interpret returns the meaning of a word in an answer with this status.
//
// The table says what the word means. In three cases the status changes this meaning:
//
//   - 401, 403 and 429 are about the operator's credentials and quota. If a refusal about the
//     payer comes with one of them, the request was turned away, and the payer must not be
//     told that the payment is bad.
//   - If a used nonce comes with 401, 403 or 429, it leaves doubt, because something has
//     happened to the authorization.
//   - If a word that is not in the table comes with 401, 403, 404, 405 or 429, it comes from
//     a gateway or a router, and means the same as the status.
//
// A word that the table lists as doubt means doubt with any status.
func (re reply) interpret(word string) reason {
	r, listed := findReason(word)
	code, operators := re.turnAwayCode()
	refuses := r.meaning == refusal || r.meaning == expired
	switch {
	case !listed && code != "", operators && refuses:
		r.meaning = turnedAway
		r.answer = code
	case operators && r.meaning == nonceUsed:
		r.meaning = doubt
	}
	if r.answer == fault.FacilitatorUnauthorized && !re.hasCredentials {
		r.answer = fault.FacilitatorMisconfigured
	}
	return r
}

// turnAwayCode returns the code of the fault if the status says that the request was turned
// away before it was processed. For any other status, the code is empty. The result operators
// is true if the status is about the operator's credentials or quota. 404 and 405 mean that the
// URL is wrong.
func (re reply) turnAwayCode() (code fault.Code, operators bool) {
	switch re.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		if !re.hasCredentials {
			return fault.FacilitatorMisconfigured, true
		}
		return fault.FacilitatorUnauthorized, true
	case http.StatusTooManyRequests:
		return fault.FacilitatorUnavailable, true
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fault.FacilitatorMisconfigured, false
	}
	return "", false
}
