package facilitator

import (
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Meaning is what a reason says about a payment.
type Meaning int

const (
	// Doubt: the reason can be given after a broadcast, or says nothing about
	// the payer. It is the zero value, because every reason that is not in the
	// table has this meaning.
	Doubt Meaning = iota
	// Refusal: given before any broadcast, and about the payer.
	Refusal
	// Expired is a Refusal because the authorization's window is over.
	Expired
	// NonceUsed: the authorization is used or cancelled on chain, by anybody.
	NonceUsed
	// Pending: a transaction was broadcast, and its receipt is awaited.
	Pending
	// TurnedAway: the facilitator did not process the request, before any
	// broadcast, for a reason that the operator has to deal with.
	TurnedAway
)

// String is the meaning as documents name it.
func (m Meaning) String() string {
	switch m {
	case Refusal:
		return "refused"
	case Expired:
		return "expired"
	case NonceUsed:
		return "nonce used"
	case Pending:
		return "pending"
	case TurnedAway:
		return "turned away"
	case Doubt:
	}
	return "unknown"
}

// Party is who can do something about a reason.
type Party int

// The parties. Nobody also stands for "not known".
const (
	Nobody Party = iota
	Payer
	Operator
)

// String is the party as documents name it.
func (p Party) String() string {
	switch p {
	case Payer:
		return "payer"
	case Operator:
		return "operator"
	case Nobody:
	}
	return "nobody"
}

// Source is where a reason is defined or was seen.
type Source string

// The sources of the table.
const (
	fromSpec      Source = "x402 specification v2 §9"
	fromReference Source = "reference facilitators (TypeScript and Go), scheme exact, EIP-3009"
	fromCore      Source = "reference facilitators (TypeScript and Go), core"
	fromPermit2   Source = "reference facilitators, Permit2, which this service does not offer"
	fromCDP       Source = "Coinbase CDP, x402 API"
	fromPlatform  Source = "Coinbase CDP, errors of the platform"
	fromCircle    Source = "Circle"
	fromOthers    Source = "seen in public facilitators"
)

// Reason is what one reason code of a facilitator means.
type Reason struct {
	// Code is the exact code. Letter case counts.
	Code    string
	Meaning Meaning
	Fault   Party
	// Signature says of a Refusal that it is the signature that is wrong.
	Signature bool
	// Answer is the fault to answer after TurnedAway. facilitator_unauthorized means
	// facilitator_misconfigured where no credentials are configured.
	Answer fault.Code
	Source Source
	// Note says why the code has this meaning, where the code does not.
	Note string
}

// Notes of more than one row.
const (
	afterBroadcast = "Given after a broadcast, or perhaps after one."
	catchAll       = "A catch-all, which also covers a used nonce and what follows a broadcast."
	noLook         = "The facilitator could not look, which says nothing about the payer."
	serverWord     = "A resource server's word; no facilitator is known to give it before a broadcast."
)

// Reasons is the table of what facilitators say, for /settle and /verify
// alike. A code that is not in it is in doubt: facilitators answer with words
// of their own from around the broadcast.
func Reasons() []Reason {
	return []Reason{
		// The closed list of verdicts about the payer.
		{Code: "insufficient_funds", Meaning: Refusal, Fault: Payer, Source: fromSpec},
		{Code: "invalid_exact_evm_insufficient_balance", Meaning: Refusal, Fault: Payer, Source: fromReference},
		{Code: "invalid_exact_evm_insufficient_funds", Meaning: Refusal, Fault: Payer, Source: fromCDP},
		{Code: "invalid_exact_evm_payload_authorization_valid_after", Meaning: Refusal, Fault: Payer, Source: fromSpec, Note: "The window begins in the future by the facilitator's clock."},
		{Code: "invalid_exact_evm_transaction_simulation_failed", Meaning: Refusal, Fault: Payer, Source: fromReference, Note: "The transfer would revert, and none of the more precise reasons fits."},
		{Code: "invalid_exact_evm_payload_undeployed_smart_wallet", Meaning: Refusal, Fault: Payer, Source: fromReference, Note: "The payer is a contract wallet that does not exist yet, and the signature does not say how to make it."},
		{Code: "eip6492_factory_not_allowed", Meaning: Refusal, Fault: Payer, Source: fromReference, Note: "The facilitator does not create wallets of the payer's kind."},
		{Code: "self_send_not_allowed", Meaning: Refusal, Fault: Payer, Source: fromCDP, Note: "Payer and payee are the same account."},
		{Code: "kyt_risk_detected", Meaning: Refusal, Fault: Payer, Source: fromCDP, Note: "Screening declined the payer or the payee. CDP sends it with status 403, which makes it the operator's affair."},
		{Code: "invalid_exact_evm_payload_authorization_from_address_kyt", Meaning: Refusal, Fault: Payer, Source: fromCDP, Note: "Screening declined the payer."},
		{Code: "invalid_exact_evm_payload_signature", Meaning: Refusal, Fault: Payer, Signature: true, Source: fromSpec},
		{Code: "invalid_exact_evm_signature", Meaning: Refusal, Fault: Payer, Signature: true, Source: fromReference},
		{Code: "invalid_exact_evm_signature_format", Meaning: Refusal, Fault: Payer, Signature: true, Source: fromReference},
		{Code: "invalid_exact_evm_failed_to_parse_signature", Meaning: Refusal, Fault: Payer, Signature: true, Source: fromReference, Note: "Given by settle, before it sends anything."},
		{Code: "invalid_exact_evm_payload_signature_address", Meaning: Refusal, Fault: Payer, Signature: true, Source: fromCDP},
		{Code: "invalid_exact_evm_payload_authorization_typed_data_message", Meaning: Refusal, Fault: Payer, Signature: true, Source: fromCDP},
		{Code: "invalid_exact_evm_payload_authorization_valid_before", Meaning: Expired, Fault: Payer, Source: fromSpec, Note: "Facilitators look at the window before they look at the nonce, so it says nothing about what has moved."},
		{Code: x402.ReasonNonceUsed, Meaning: NonceUsed, Source: fromReference, Note: "An earlier settlement of ours, a third party who submitted the transfer, or a cancellation."},

		// The operator's affair: credentials, quota, configuration, and the part
		// of the request that this service composes. The payment was held to the
		// same terms before it was sent, so a facilitator that finds them
		// different was sent, or reads, something else than the payer signed.
		{Code: "unauthorized", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnauthorized, Source: fromPlatform},
		{Code: "forbidden", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnauthorized, Source: fromPlatform},
		{Code: "invalid_api_key", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnauthorized, Source: fromOthers},
		{Code: "missing_api_key", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnauthorized, Source: fromOthers},
		{Code: "api_key_disabled", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnauthorized, Source: fromOthers},
		{Code: "authentication_required", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnauthorized, Source: fromOthers},
		{Code: "seller_not_allowed", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnauthorized, Source: fromOthers},
		{Code: "rate_limit_exceeded", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnavailable, Source: fromPlatform},
		{Code: "rate_limited", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnavailable, Source: fromOthers},
		{Code: "too_many_requests", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnavailable, Source: fromOthers},
		{Code: "quota_exceeded", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnavailable, Source: fromOthers},
		{Code: "invalid_request", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromPlatform},
		{Code: "invalid_network", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromSpec},
		{Code: "invalid_scheme", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromSpec},
		{Code: "unsupported_scheme", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromSpec},
		{Code: "invalid_x402_version", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromSpec},
		{Code: "invalid_payment_requirements", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromSpec},
		{Code: "invalid_exact_evm_payload_recipient_mismatch", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromSpec},
		{Code: "invalid_exact_evm_payload_authorization_value_mismatch", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromSpec},
		{Code: "invalid_exact_evm_scheme", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_network_mismatch", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_missing_eip712_domain", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_recipient_mismatch", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_authorization_value", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_token_name_mismatch", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_token_version_mismatch", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_eip3009_not_supported", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "asset_not_deployed_contract", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "unsupported_payload_type", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_payload_missing_signature", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_failed_to_get_network_config", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "invalid_exact_evm_required_amount", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromReference},
		{Code: "unsupported_network", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCore},
		{Code: "network_mismatch", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCore},
		{Code: "scheme_mismatch", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCore},
		{Code: "no_facilitator_for_network", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCore},
		{Code: "no_facilitator", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCore},
		{Code: "invalid_version", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCore},
		{Code: "invalid_v2_payload", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCore},
		{Code: "invalid_v2_requirements", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCore},
		{Code: "amount_too_low", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP},
		{Code: "invalid_amount", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP},
		{Code: "invalid_exact_evm_payload_authorization_value", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP},
		{Code: "invalid_exact_evm_payload_authorization_value_too_low", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP},
		{Code: "unsupported_asset", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP},
		{Code: "invalid_bazaar_extension", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP},
		{Code: "invalid_exact_evm_unsupported_scheme", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP},
		{Code: "invalid_exact_evm_extra_field", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP},
		{Code: "request_blocked_by_location", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorUnauthorized, Source: fromCDP, Note: "The facilitator sees where this service calls from, not where the payer is."},
		{Code: "invalid_exact_evm_payload_authorization_to_address_kyt", Meaning: TurnedAway, Fault: Operator, Answer: fault.FacilitatorMisconfigured, Source: fromCDP, Note: "Screening declined the payee."},

		// Known codes that prove nothing. They mean what an unknown word means,
		// but for one thing: a status that turns a request away does not clear
		// their doubt. The Permit2 ones judge another kind of payment than this
		// service sends.
		{Code: "settlement_pending", Meaning: Pending, Source: fromSpec},
		{Code: "settle_exact_evm_transaction_confirmation_timed_out", Meaning: Pending, Source: fromCDP},
		{Code: "invalid_transaction_state", Source: fromSpec, Note: afterBroadcast},
		{Code: "unexpected_settle_error", Source: fromSpec, Note: afterBroadcast},
		{Code: "invalid_exact_evm_transaction_failed", Source: fromReference, Note: afterBroadcast},
		{Code: "invalid_exact_evm_transfer_event_mismatch", Source: fromReference, Note: afterBroadcast},
		{Code: "invalid_exact_evm_failed_to_execute_transfer", Source: fromReference, Note: afterBroadcast},
		{Code: "invalid_exact_evm_failed_to_get_receipt", Source: fromReference, Note: afterBroadcast},
		{Code: "smart_wallet_deployment_failed", Source: fromReference, Note: afterBroadcast},
		{Code: "duplicate_settlement", Source: fromCDP, Note: afterBroadcast},
		{Code: "settle_exact_node_failure", Source: fromCDP, Note: afterBroadcast},
		{Code: "settle_exact_failed_onchain", Source: fromCDP, Note: afterBroadcast},
		{Code: "invalid_exact_evm_transaction_state", Source: fromCDP, Note: afterBroadcast},
		{Code: "credential_bound_elsewhere", Source: fromCircle, Note: afterBroadcast},
		{Code: "settlement_failed", Source: fromCore, Note: afterBroadcast},
		{Code: "invalid_response", Source: fromCore, Note: afterBroadcast},
		{Code: "internal_server_error", Source: fromPlatform, Note: afterBroadcast},
		{Code: "bad_gateway", Source: fromPlatform, Note: afterBroadcast},
		{Code: "service_unavailable", Source: fromPlatform, Note: afterBroadcast},
		{Code: "endpoint_unavailable", Source: fromPlatform, Note: afterBroadcast},
		{Code: "timed_out", Source: fromPlatform, Note: afterBroadcast},
		{Code: "idempotency_error", Source: fromPlatform, Note: afterBroadcast},
		{Code: "settlement_error", Source: fromOthers, Note: afterBroadcast},
		{Code: "settle_failed", Source: fromOthers, Note: afterBroadcast},
		{Code: "settle_error", Source: fromOthers, Note: afterBroadcast},
		{Code: "rpc_error", Source: fromOthers, Note: afterBroadcast},
		{Code: "relayer_error", Source: fromOthers, Note: afterBroadcast},
		{Code: "network_error", Source: fromOthers, Note: afterBroadcast},
		{Code: "facilitator_error", Source: fromOthers, Note: afterBroadcast},
		{Code: "tx_failed", Source: fromOthers, Note: afterBroadcast},
		{Code: "transaction_reverted", Source: fromOthers, Note: afterBroadcast},
		{Code: "nonce_too_low", Source: fromOthers, Note: afterBroadcast},
		{Code: "replacement_underpriced", Source: fromOthers, Note: afterBroadcast},
		{Code: "authorization_is_used_or_canceled", Source: fromOthers, Note: afterBroadcast},
		{Code: "nonce_already_consumed", Source: fromOthers, Note: afterBroadcast},
		{Code: "invalid_payload", Source: fromSpec, Note: catchAll},
		{Code: "invalid_exact_evm_payload", Source: fromReference, Note: catchAll},
		{Code: "unknown_error", Source: fromCDP, Note: catchAll},
		{Code: "preflight_validation_failed", Source: fromCDP, Note: catchAll},
		{Code: "unexpected_verify_error", Source: fromSpec, Note: noLook},
		{Code: "invalid_exact_evm_failed_to_check_nonce", Source: fromReference, Note: noLook},
		{Code: "invalid_exact_evm_failed_to_get_balance", Source: fromReference, Note: noLook},
		{Code: "invalid_exact_evm_failed_to_verify_signature", Source: fromReference, Note: noLook},
		{Code: "invalid_exact_evm_verification_failed", Source: fromReference, Note: noLook},
		{Code: "invalid_exact_evm_failed_to_check_deployment", Source: fromReference, Note: noLook},
		{Code: "Payment required", Source: fromCore, Note: serverWord},
		{Code: "No matching payment requirements", Source: fromCore, Note: serverWord},
		{Code: "extension_echo_mismatch", Source: fromCore, Note: serverWord},
		{Code: "invalid_payment", Source: fromCore, Note: serverWord},
		{Code: "payment_required", Source: fromCore, Note: serverWord},
		{Code: "signature_invalid", Source: fromCore, Note: serverWord},
		{Code: "payment_expired", Source: fromCore, Note: serverWord},
		{Code: "failed_to_marshal_payload", Source: fromCore, Note: serverWord},
		{Code: "failed_to_marshal_requirements", Source: fromCore, Note: serverWord},
		{Code: "invalid_settlement_override", Source: fromCore, Note: serverWord},
		{Code: "invalid_permit2_spender", Source: fromPermit2},
		{Code: "invalid_permit2_recipient_mismatch", Source: fromPermit2},
		{Code: "permit2_deadline_expired", Source: fromPermit2},
		{Code: "permit2_not_yet_valid", Source: fromPermit2},
		{Code: "permit2_amount_mismatch", Source: fromPermit2},
		{Code: "permit2_insufficient_amount", Source: fromPermit2},
		{Code: "permit2_token_mismatch", Source: fromPermit2},
		{Code: "invalid_permit2_signature", Source: fromPermit2},
		{Code: "permit2_allowance_required", Source: fromPermit2},
		{Code: "permit2_simulation_failed", Source: fromPermit2},
		{Code: "permit2_insufficient_balance", Source: fromPermit2},
		{Code: "permit2_proxy_not_deployed", Source: fromPermit2},
		{Code: "permit2_invalid_amount", Source: fromPermit2},
		{Code: "permit2_invalid_destination", Source: fromPermit2},
		{Code: "permit2_invalid_owner", Source: fromPermit2},
		{Code: "permit2_payment_too_early", Source: fromPermit2},
		{Code: "permit2_invalid_nonce", Source: fromPermit2},
		{Code: "permit2_2612_amount_mismatch", Source: fromPermit2},
		{Code: "permit2_disabled", Source: fromPermit2},
		{Code: "erc20_approval_tx_failed", Source: fromPermit2},
		{Code: "erc20_approval_from_mismatch", Source: fromPermit2},
		{Code: "erc20_approval_asset_mismatch", Source: fromPermit2},
		{Code: "erc20_approval_spender_not_permit2", Source: fromPermit2},
		{Code: "erc20_approval_tx_parse_failed", Source: fromPermit2},
		{Code: "erc20_approval_tx_wrong_target", Source: fromPermit2},
		{Code: "erc20_approval_tx_wrong_selector", Source: fromPermit2},
		{Code: "erc20_approval_tx_wrong_spender", Source: fromPermit2},
		{Code: "erc20_approval_tx_signer_mismatch", Source: fromPermit2},
		{Code: "erc20_approval_tx_invalid_signature", Source: fromPermit2},
		{Code: "invalid_erc20_approval_extension_format", Source: fromPermit2},
		{Code: "invalid_eip2612_extension_format", Source: fromPermit2},
	}
}

// lookup returns the row of a code, and whether there is one.
func lookup(code string) (Reason, bool) {
	for _, r := range Reasons() {
		if r.Code == code {
			return r, true
		}
	}
	return Reason{Code: code}, false
}
