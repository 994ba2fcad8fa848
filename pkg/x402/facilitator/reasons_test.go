package facilitator

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// The codes of the protocol, of the reference facilitators and of those that
// are in use, by what they must come to. The lists repeat the table of the
// package on purpose: a row that changes its meaning has to be changed twice.
const (
	refusedCodes = `
		insufficient_funds invalid_exact_evm_insufficient_balance invalid_exact_evm_insufficient_funds
		invalid_exact_evm_payload_authorization_valid_after invalid_exact_evm_transaction_simulation_failed
		invalid_exact_evm_payload_undeployed_smart_wallet eip6492_factory_not_allowed self_send_not_allowed
		kyt_risk_detected invalid_exact_evm_payload_authorization_from_address_kyt`
	signatureCodes = `
		invalid_exact_evm_payload_signature invalid_exact_evm_signature invalid_exact_evm_signature_format
		invalid_exact_evm_failed_to_parse_signature invalid_exact_evm_payload_signature_address
		invalid_exact_evm_payload_authorization_typed_data_message`
	expiredCodes      = `invalid_exact_evm_payload_authorization_valid_before`
	usedCodes         = `invalid_exact_evm_nonce_already_used`
	pendingCodes      = `settlement_pending settle_exact_evm_transaction_confirmation_timed_out`
	unauthorizedCodes = `
		unauthorized forbidden invalid_api_key missing_api_key api_key_disabled authentication_required
		seller_not_allowed request_blocked_by_location`
	busyCodes          = `rate_limit_exceeded rate_limited too_many_requests quota_exceeded`
	misconfiguredCodes = `
		invalid_request invalid_network invalid_scheme unsupported_scheme invalid_x402_version invalid_payment_requirements
		invalid_exact_evm_payload_recipient_mismatch invalid_exact_evm_payload_authorization_value_mismatch
		invalid_exact_evm_payload_authorization_value invalid_exact_evm_scheme invalid_exact_evm_network_mismatch
		invalid_exact_evm_missing_eip712_domain invalid_exact_evm_recipient_mismatch invalid_exact_evm_authorization_value
		invalid_exact_evm_token_name_mismatch invalid_exact_evm_token_version_mismatch
		invalid_exact_evm_eip3009_not_supported asset_not_deployed_contract unsupported_payload_type
		invalid_exact_evm_payload_missing_signature invalid_exact_evm_failed_to_get_network_config
		invalid_exact_evm_required_amount unsupported_network network_mismatch scheme_mismatch no_facilitator_for_network
		no_facilitator invalid_version invalid_v2_payload invalid_v2_requirements amount_too_low invalid_amount
		invalid_exact_evm_payload_authorization_value_too_low unsupported_asset invalid_bazaar_extension
		invalid_exact_evm_unsupported_scheme invalid_exact_evm_extra_field
		invalid_exact_evm_payload_authorization_to_address_kyt`
	doubtfulCodes = `
		invalid_transaction_state unexpected_settle_error invalid_exact_evm_transaction_failed
		invalid_exact_evm_transfer_event_mismatch invalid_exact_evm_failed_to_execute_transfer
		invalid_exact_evm_failed_to_get_receipt smart_wallet_deployment_failed duplicate_settlement
		settle_exact_node_failure settle_exact_failed_onchain invalid_exact_evm_transaction_state credential_bound_elsewhere
		settlement_failed invalid_response internal_server_error bad_gateway service_unavailable endpoint_unavailable timed_out
		idempotency_error settlement_error settle_failed settle_error rpc_error relayer_error network_error facilitator_error
		tx_failed transaction_reverted nonce_too_low replacement_underpriced authorization_is_used_or_canceled
		nonce_already_consumed invalid_payload invalid_exact_evm_payload unknown_error preflight_validation_failed
		unexpected_verify_error invalid_exact_evm_failed_to_check_nonce invalid_exact_evm_failed_to_get_balance
		invalid_exact_evm_failed_to_verify_signature invalid_exact_evm_verification_failed
		invalid_exact_evm_failed_to_check_deployment Payment_required No_matching_payment_requirements
		extension_echo_mismatch invalid_payment payment_required signature_invalid payment_expired
		failed_to_marshal_payload failed_to_marshal_requirements invalid_settlement_override
		invalid_permit2_spender invalid_permit2_recipient_mismatch permit2_deadline_expired permit2_not_yet_valid
		permit2_amount_mismatch permit2_insufficient_amount permit2_token_mismatch invalid_permit2_signature
		permit2_allowance_required permit2_simulation_failed permit2_insufficient_balance permit2_proxy_not_deployed
		permit2_invalid_amount permit2_invalid_destination permit2_invalid_owner permit2_payment_too_early
		permit2_invalid_nonce permit2_2612_amount_mismatch permit2_disabled erc20_approval_tx_failed
		erc20_approval_from_mismatch erc20_approval_asset_mismatch erc20_approval_spender_not_permit2
		erc20_approval_tx_parse_failed erc20_approval_tx_wrong_target erc20_approval_tx_wrong_selector
		erc20_approval_tx_wrong_spender erc20_approval_tx_signer_mismatch erc20_approval_tx_invalid_signature
		invalid_erc20_approval_extension_format invalid_eip2612_extension_format`
)

// codes are the words of a list. Two codes of the core are sentences.
func codes(list string) []string {
	all := strings.Fields(list)
	for i, code := range all {
		if code == "Payment_required" || code == "No_matching_payment_requirements" {
			all[i] = strings.ReplaceAll(code, "_", " ")
		}
	}
	return all
}

// unlisted are words that no table has: what facilitators may say tomorrow,
// and everything that only looks like a code of the closed list.
func unlisted() []string {
	return []string{
		"", "error", "unknown", "failed", "settlement", "ok", "null", "SETTLEMENT_ERROR", "brand_new_reason", "broadcast_failed",
		"gas_too_low", "insufficient_funds_for_gas", "INSUFFICIENT_FUNDS", "Insufficient_Funds", "insufficient_funds ",
		" insufficient_funds", "insufficient-funds", "insufficient_fund", "x_insufficient_funds", "insufficient_balance",
		"invalid_exact_evm_insufficient_balance_after_broadcast", "invalid_exact_evm_signaturе", "invalid_signature",
		"Invalid_exact_evm_signature", "invalid_exact_evm_signature\n", "invalid_exact_svm_signature", "signature",
		"nonce_already_used", "authorization_used", "nonce_used", "INVALID_EXACT_EVM_NONCE_ALREADY_USED", "valid_before",
		"invalid_exact_evm_valid_before", "expired", "confirmation_timed_out", "settlement_pending_review",
		"SETTLEMENT_PENDING", "pending", "rate_limited_after_send", "unauthorized_transfer", "forbidden_nonce",
		"blacklisted", "not_supported", "denied", "execution reverted", "wallet is not allowed", "kyt", "preflight",
		"simulation_failed", "transaction_simulation_failed", "slow_down", "UNKNOWN_ERROR", "connection to node lost",
	}
}

// expectations name what /settle and /verify come to by status, as an ordinary
// answer, 401 and 403, 404 and 405, and 429. The request carries credentials.
type expectations struct {
	codes                               []string
	settle, settle403, settle404, s429  string
	verify, verify403, verify404, ver29 string
}

func expected() map[string]expectations {
	const (
		denied, busy, wrong = "turned_away facilitator_unauthorized", "turned_away facilitator_unavailable", "turned_away facilitator_misconfigured"
		fDenied, fBusy      = "facilitator_unauthorized", "facilitator_unavailable"
		fWrong              = "facilitator_misconfigured"
	)
	return map[string]expectations{
		"refused":       {codes(refusedCodes), "refused", denied, "refused", busy, "invalid", fDenied, "invalid", fBusy},
		"signature":     {codes(signatureCodes), "refused", denied, "refused", busy, "invalid signature", fDenied, "invalid signature", fBusy},
		"expired":       {codes(expiredCodes), "refused expired", denied, "refused expired", busy, "invalid", fDenied, "invalid", fBusy},
		"used":          {codes(usedCodes), "refused used", "unknown", "refused used", "unknown", "invalid used", fDenied, "invalid used", fBusy},
		"pending":       {codes(pendingCodes), "unknown pending", "unknown pending", "unknown pending", "unknown pending", fBusy, fDenied, fWrong, fBusy},
		"unauthorized":  {codes(unauthorizedCodes), denied, denied, denied, denied, fDenied, fDenied, fDenied, fDenied},
		"busy":          {codes(busyCodes), busy, busy, busy, busy, fBusy, fBusy, fBusy, fBusy},
		"misconfigured": {codes(misconfiguredCodes), wrong, wrong, wrong, wrong, fWrong, fWrong, fWrong, fWrong},
		"doubtful":      {codes(doubtfulCodes), "unknown", "unknown", "unknown", "unknown", fBusy, fDenied, fWrong, fBusy},
		"unlisted":      {unlisted(), "unknown", denied, wrong, busy, fBusy, fDenied, fWrong, fBusy},
	}
}

// at picks the expectation for a status.
func (e expectations) at(status int) (settle, verify string) {
	switch status {
	case 401, 403:
		return e.settle403, e.verify403
	case 404, 405:
		return e.settle404, e.verify404
	case 429:
		return e.s429, e.ver29
	}
	return e.settle, e.verify
}

func settlesAs(re reply) string {
	s, pending := classify(re, wanted())
	out := s.Class.String()
	if s.Expired {
		out += " expired"
	}
	if s.NonceUsed {
		out += " used"
	}
	if pending {
		out += " pending"
	}
	if s.Code != "" {
		out += " " + string(s.Code)
	}
	return out
}

func verifiesAs(re reply) string {
	v := judge(re, wanted())
	switch {
	case v.Fault != nil && (v.Valid || v.Reason != ""):
		return "both a verdict and none"
	case v.Fault != nil:
		return string(v.Fault.Code)
	case v.Valid:
		return "valid"
	case v.BadSignature:
		return "invalid signature"
	case v.NonceUsed:
		return "invalid used"
	}
	return "invalid"
}

func TestEveryReasonAtEveryStatus(t *testing.T) {
	t.Parallel()
	for name, e := range expected() {
		for _, code := range e.codes {
			for _, status := range []int{200, 400, 402, 409, 422, 500, 502, 503, 401, 403, 404, 405, 429} {
				settle, verify := e.at(status)
				in, listed := fmt.Sprintf("%s: %d %q", name, status, code), name != "unlisted"
				plain := credentialed(answered(status, refusal(code)))
				if got := settlesAs(plain); got != settle {
					t.Errorf("%s: settle: %s, want %s", in, got, settle)
				}
				s, _ := classify(plain, wanted())
				if listed && s.Reason != code || s.Transaction != "" || s.Class == x402.TurnedAway && s.Cause == nil {
					t.Errorf("%s: settle: %+v", in, s)
				}
				after := credentialed(answered(status, refusalWith(code, hash)))
				doubt := map[bool]string{true: "unknown pending", false: "unknown"}[name == "pending"]
				s, _ = classify(after, wanted())
				if settlesAs(after) != doubt || listed && s.Reason != code || s.Transaction != hash {
					t.Errorf("%s: settle with a transaction: %s, %+v, want %s", in, settlesAs(after), s, doubt)
				}
				judged := credentialed(answered(status, fmt.Sprintf(`{"isValid":false,"invalidReason":%q,"payer":%q}`, code, payer)))
				if got := verifiesAs(judged); got != verify {
					t.Errorf("%s: verify: %s, want %s", in, got, verify)
				}
				if v := judge(judged, wanted()); v.Fault == nil && v.Reason != code {
					t.Errorf("%s: verify: %+v", in, v)
				}
			}
		}
	}
	if n := len(unlisted()); n < 40 {
		t.Errorf("%d words that are on no list", n)
	}
}

// The errors of a platform in front of a facilitator count only where they are
// the operator's affair.
func TestPlatformErrors(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]string{
		`{"errorType":"invalid_request","errorMessage":"doesn't match the schema"}`: {"turned_away facilitator_misconfigured", "facilitator_misconfigured"},
		`{"errorType":"unauthorized"}`:                                              {"turned_away facilitator_unauthorized", "facilitator_unauthorized"},
		`{"errorType":"rate_limit_exceeded"}`:                                       {"turned_away facilitator_unavailable", "facilitator_unavailable"},
		`{"errorType":"insufficient_funds"}`:                                        {"unknown", "facilitator_unavailable"},
		`{"errorType":"settlement_pending"}`:                                        {"unknown", "facilitator_unavailable"},
		`{"errorType":"internal_server_error"}`:                                     {"unknown", "facilitator_unavailable"},
		`{"errorType":"brand_new"}`:                                                 {"unknown", "facilitator_unavailable"},
		`{"errorType":["unauthorized"]}`:                                            {"unknown", "facilitator_unavailable"},
		`{"error":"unauthorized"}`:                                                  {"unknown", "facilitator_unavailable"},
	} {
		for _, status := range []int{200, 400, 422, 500} {
			re := credentialed(answered(status, body))
			if got := settlesAs(re); got != want[0] {
				t.Errorf("settle %d %s: %s, want %s", status, body, got, want[0])
			}
			if got := verifiesAs(re); got != want[1] {
				t.Errorf("verify %d %s: %s, want %s", status, body, got, want[1])
			}
		}
	}
}

// The table and the lists above have the same codes, once each, and every row
// is complete.
func TestTableOfReasons(t *testing.T) {
	t.Parallel()
	var want, have []string
	for name, e := range expected() {
		if name != "unlisted" {
			want = append(want, e.codes...)
		}
	}
	for _, r := range Reasons() {
		have = append(have, r.Code)
		party := map[Meaning]Party{Refusal: Payer, Expired: Payer, TurnedAway: Operator}[r.Meaning]
		if r.Fault != party {
			t.Errorf("%s: %s, and the fault of %s", r.Code, r.Meaning, r.Fault)
		}
		if r.Signature && r.Meaning != Refusal || (r.Answer != "") != (r.Meaning == TurnedAway) || r.Source == "" {
			t.Errorf("%+v", r)
		}
		if r.Answer != "" && !slices.Contains([]fault.Code{fault.FacilitatorUnauthorized, fault.FacilitatorMisconfigured, fault.FacilitatorUnavailable}, r.Answer) {
			t.Errorf("%s is answered %s", r.Code, r.Answer)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	equal(t, "codes of the table", want, have)
	if len(slices.Compact(have)) != len(Reasons()) {
		t.Error("a code has two rows")
	}
	if x402.ReasonNonceUsed != usedCodes {
		t.Errorf("the used nonce is called %s", x402.ReasonNonceUsed)
	}
}

// What a second facilitator may be asked after, and what counts against this one:
// a reason about the payer is told apart at any status and in either form, and an
// unknown outcome with a verdict from one without.
func TestAboutPayerAndNoVerdict(t *testing.T) {
	t.Parallel()
	const hash = `"0x7c07e16e912e49c7e7613b44cc8a198ca856112064bfa97a8b0d1427c188ab99"`
	for name, c := range map[string]struct {
		status           int
		body             string
		class            x402.Class
		about, noVerdict bool
	}{
		"refused":                   {400, `{"success":false,"errorReason":"insufficient_funds"}`, x402.Refused, false, false},
		"refused at the door":       {403, `{"success":false,"errorReason":"kyt_risk_detected"}`, x402.TurnedAway, true, false},
		"by the platform":           {403, `{"errorType":"kyt_risk_detected"}`, x402.TurnedAway, true, false},
		"by the platform, 500":      {500, `{"errorType":"kyt_risk_detected"}`, x402.Unknown, true, true},
		"with a transaction":        {200, `{"success":false,"errorReason":"insufficient_funds","transaction":` + hash + `}`, x402.Unknown, true, false},
		"credentials":               {401, `{"errorType":"unauthorized"}`, x402.TurnedAway, false, false},
		"schema":                    {400, `{"errorType":"invalid_request"}`, x402.TurnedAway, false, false},
		"moved":                     {404, `not found`, x402.TurnedAway, false, false},
		"a word of a facilitator's": {500, `{"success":false,"errorReason":"Oops!"}`, x402.Unknown, false, false},
		"a gateway":                 {502, `<html>`, x402.Unknown, false, true},
		"nonsense":                  {200, `{"success":"yes"}`, x402.Unknown, false, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		client := newClient(t, Config{URL: server.URL + "/base/", Credentials: mustBearer(t, "token")})
		s := client.Settle(t.Context(), x402.Payload{}, x402.Requirements{})
		if s.Class != c.class || s.AboutPayer != c.about || s.NoVerdict != c.noVerdict {
			t.Errorf("%s: %s, about the payer %t, no verdict %t (%s)", name, s.Class, s.AboutPayer, s.NoVerdict, s.Reason)
		}
		if name == "by the platform" {
			if v := client.Verify(t.Context(), x402.Payload{}, x402.Requirements{}); v.Fault == nil || !v.AboutPayer {
				t.Errorf("verify: %+v", v)
			}
		}
		if want := server.Listener.Addr().String() + "/base"; client.Name() != want {
			t.Errorf("it is called %q, want %q", client.Name(), want)
		}
		server.Close()
		if s := client.Settle(t.Context(), x402.Payload{}, x402.Requirements{}); s.Class != x402.NotSent || s.NoVerdict {
			t.Errorf("down: %+v", s)
		}
	}
}
