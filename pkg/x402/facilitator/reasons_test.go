package facilitator

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// The codes of the protocol, of the reference facilitators and of those that
// are in use, by what they must come to. The lists repeat the table of the
// package on purpose: a row that changes its meaning has to be changed twice. Every
// other row of the table leaves doubt, and none of them may be lost.
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
	doubtfulWords = 84
)

// unlisted are words that no table has: what facilitators may say tomorrow,
// and everything that only looks like a code of the closed list.
const unlisted = "|error|ok|brand_new_reason|insufficient_funds_for_gas|INSUFFICIENT_FUNDS|Insufficient_funds|insufficient_funds |" +
	" insufficient_funds|insufficient_fund|x_insufficient_funds|insufficient_balance|invalid_exact_evm_signaturе|invalid_signature|" +
	"invalid_exact_evm_signature\n|signature|nonce_already_used|INVALID_EXACT_EVM_NONCE_ALREADY_USED|expired|SETTLEMENT_PENDING|" +
	"settlement_pending_review|rate_limited_after_send|unauthorized_transfer|execution reverted"

// doubtful are the codes of the table that are on no list.
func doubtful() (codes []string) {
	listed := strings.Fields(strings.Join([]string{
		refusedCodes, signatureCodes, expiredCodes, usedCodes, pendingCodes, unauthorizedCodes, busyCodes, misconfiguredCodes}, " "))
	for _, word := range Words() {
		if !slices.Contains(listed, word) {
			codes = append(codes, word)
		}
	}
	return codes
}

// outcomes are what /settle and /verify come to after some codes: where the status says
// nothing, at 401 and 403, at 404 and 405, and at 429. The request carries credentials.
type outcomes struct {
	codes          []string
	settle, verify [4]string
}

func column(status int) int {
	switch status {
	case 401, 403:
		return 1
	case 404, 405:
		return 2
	case 429:
		return 3
	}
	return 0
}

func expected() map[string]outcomes {
	const (
		away                = "turned_away "
		denied, busy, wrong = string(fault.FacilitatorUnauthorized), string(fault.FacilitatorUnavailable), string(fault.FacilitatorMisconfigured)
	)
	all := func(word string) [4]string { return [4]string{word, word, word, word} }
	payers := func(word, at401, at429 string) [4]string { return [4]string{word, at401, word, at429} }
	none := [4]string{busy, denied, wrong, busy} // what a status comes to by itself
	f := strings.Fields
	return map[string]outcomes{
		"refused":       {f(refusedCodes), payers("refused", away+denied, away+busy), payers("invalid", denied, busy)},
		"signature":     {f(signatureCodes), payers("refused", away+denied, away+busy), payers("invalid signature", denied, busy)},
		"expired":       {f(expiredCodes), payers("refused expired", away+denied, away+busy), payers("invalid", denied, busy)},
		"used":          {f(usedCodes), payers("refused used", "unknown", "unknown"), payers("invalid used", denied, busy)},
		"pending":       {f(pendingCodes), all("unknown pending"), none},
		"unauthorized":  {f(unauthorizedCodes), all(away + denied), all(denied)},
		"busy":          {f(busyCodes), all(away + busy), all(busy)},
		"misconfigured": {f(misconfiguredCodes), all(away + wrong), all(wrong)},
		"doubtful":      {doubtful(), all("unknown"), none},
		"unlisted":      {strings.Split(unlisted, "|"), [4]string{"unknown", away + denied, away + wrong, away + busy}, none},
	}
}

// settles is what an answer to /settle comes to; its reason and transaction are
// beside it.
func settles(re reply) (outcome string, s x402.Settlement) {
	s, pending := classify(re, wanted())
	flag := func(is bool, name string) string { return strings.Repeat(name, map[bool]int{true: 1}[is]) }
	words := []string{s.Class.String(), flag(s.Expired, "expired"), flag(s.NonceUsed, "used"), flag(pending, "pending"), string(s.Code)}
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " "), s
}

func verifies(re reply) (outcome string, v x402.Verification) {
	v = judge(re, wanted())
	switch {
	case v.Fault != nil && (v.Valid || v.Reason != ""):
		return "both a verdict and none", v
	case v.Fault != nil:
		return string(v.Fault.Code), v
	case v.Valid:
		return "valid", v
	case v.BadSignature:
		return "invalid signature", v
	case v.NonceUsed:
		return "invalid used", v
	}
	return "invalid", v
}

// Each word in each of its forms: as a verdict of the facilitator, with a transaction,
// by /verify, and as an error of a platform in front of it, which counts only where it
// is the operator's affair.
func TestEveryReasonAtEveryStatus(t *testing.T) {
	t.Parallel()
	all := expected()
	for name, e := range all {
		platform := all["unlisted"]
		if name == "unauthorized" || name == "busy" || name == "misconfigured" {
			platform.settle[0], platform.verify[0] = e.settle[0], e.verify[0]
		}
		for _, code := range e.codes {
			for _, status := range []int{200, 400, 402, 409, 422, 500, 502, 503, 401, 403, 404, 405, 429} {
				in, listed, at := fmt.Sprintf("%s: %d %q", name, status, code), name != "unlisted", column(status)
				got, s := settles(credentialed(answered(status, refusalAnswer(code))))
				if got != e.settle[at] || listed && s.Reason != code || s.Transaction != "" || s.Class == x402.TurnedAway && s.Cause == nil {
					t.Errorf("%s: settle: %s, %+v, want %s", in, got, s, e.settle[at])
				}
				got, s = settles(credentialed(answered(status, refusalWith(code, hash))))
				doubt := map[bool]string{true: "unknown pending", false: "unknown"}[name == "pending"]
				if got != doubt || listed && s.Reason != code || s.Transaction != hash {
					t.Errorf("%s: settle with a transaction: %s, %+v, want %s", in, got, s, doubt)
				}
				got, v := verifies(credentialed(answered(status, fmt.Sprintf(`{"isValid":false,"invalidReason":%q,"payer":%q}`, code, payer))))
				if got != e.verify[at] || v.Fault == nil && v.Reason != code {
					t.Errorf("%s: verify: %s, %+v, want %s", in, got, v, e.verify[at])
				}
				re := credentialed(answered(status, fmt.Sprintf(`{"errorType":%q}`, code)))
				if got, _ := settles(re); got != platform.settle[at] {
					t.Errorf("%s: settle, platform: %s, want %s", in, got, platform.settle[at])
				}
				if got, _ := verifies(re); got != platform.verify[at] {
					t.Errorf("%s: verify, platform: %s, want %s", in, got, platform.verify[at])
				}
			}
		}
	}
}

// Each word is in the table once, and in the document beside it.
func TestTableOfReasons(t *testing.T) {
	t.Parallel()
	equal(t, "words that leave doubt", doubtfulWords, len(doubtful()))
	for _, r := range reasons() {
		if r.signature && r.meaning != refusal || (r.answer != "") != (r.meaning == turnedAway) {
			t.Errorf("contradicts itself: %+v", r)
		}
	}
	doc, err := os.ReadFile("reasons.md")
	must(t, err)
	var described []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(.*?)` \\| [^|]+ \\|").FindAllStringSubmatch(string(doc), -1) {
		described = append(described, row[1])
	}
	slices.Sort(described)
	equal(t, "words that are described", described, slices.Sorted(slices.Values(Words())))
}

// What a second facilitator may be asked after, and what counts against this one:
// a reason about the payer is told apart at any status and in either form, and an
// unknown outcome with a verdict from one without.
func TestAboutPayerAndNoVerdict(t *testing.T) {
	t.Parallel()
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
		"with a transaction":        {200, refusalWith("insufficient_funds", hash), x402.Unknown, true, false},
		"credentials":               {401, `{"errorType":"unauthorized"}`, x402.TurnedAway, false, false},
		"schema":                    {400, `{"errorType":"invalid_request"}`, x402.TurnedAway, false, false},
		"moved":                     {404, `not found`, x402.TurnedAway, false, false},
		"a word of a facilitator's": {500, `{"success":false,"errorReason":"Oops!"}`, x402.Unknown, false, false},
		"a gateway":                 {502, `<html>`, x402.Unknown, false, true},
		"nonsense":                  {200, `{"success":"yes"}`, x402.Unknown, false, true},
	} {
		re := credentialed(answered(c.status, c.body))
		s, _ := classify(re, wanted())
		if s.Class != c.class || s.AboutPayer != c.about || s.NoVerdict != c.noVerdict {
			t.Errorf("%s: %s, about the payer %t, no verdict %t (%s)", name, s.Class, s.AboutPayer, s.NoVerdict, s.Reason)
		}
		if v := judge(re, wanted()); v.AboutPayer != strings.HasPrefix(name, "by the platform") {
			t.Errorf("%s: verify: %+v", name, v)
		}
	}
	for sent, class := range map[bool]x402.Class{true: x402.Unknown, false: x402.NotSent} {
		if s, _ := classify(reply{err: errors.New("lost"), sent: sent}, wanted()); s.Class != class || s.NoVerdict != sent {
			t.Errorf("lost, sent %t: %+v", sent, s)
		}
	}
}
