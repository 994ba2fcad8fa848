package facilitator

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

func refusal(reason string) string {
	return fmt.Sprintf(`{"success":false,"errorReason":%q,"transaction":"","network":%q,"payer":%q}`, reason, network, payer)
}

func refusalWith(reason, transaction string) string {
	return fmt.Sprintf(`{"success":false,"errorReason":%q,"transaction":%q}`, reason, transaction)
}

func answered(status int, body string) reply {
	return reply{sent: true, status: status, body: []byte(body)}
}

func credentialed(r reply) reply { r.authorized = true; return r }

func TestClassify(t *testing.T) {
	t.Parallel()
	lost := errors.New("read: connection reset")
	rows := []struct {
		name string
		in   reply
		want string
	}{
		// Settled.
		{"success", answered(200, settled), "settled"},
		{"success, bare", answered(200, `{"success":true,"transaction":"`+hash+`"}`), "settled"},
		{"success, nulls and unknown members", answered(200, `{"success":true,"transaction":"`+hash+`","network":null,"payer":null,"errorReason":null,"extra":{"success":false},"amount":"1"}`), "settled"},
		{"success, empty errorReason", answered(200, `{"success":true,"transaction":"`+hash+`","errorReason":""}`), "settled"},
		{"success, payer in another case", answered(200, `{"success":true,"transaction":"`+hash+`","payer":"`+strings.ToLower(payer)+`"}`), "settled"},
		{"success, blanks around", answered(200, "\r\n "+settled+" \n"), "settled"},
		{"success in a 500", answered(500, settled), "settled"},
		{"success in a 402", answered(402, settled), "settled"},
		{"success in a 401", answered(401, settled), "settled"},
		{"success in a 302", answered(302, settled), "settled"},

		// Success that is not believed.
		{"no transaction", answered(200, `{"success":true}`), "unknown success_without_transaction"},
		{"empty transaction", answered(200, `{"success":true,"transaction":""}`), "unknown success_without_transaction"},
		{"short transaction", answered(200, `{"success":true,"transaction":"0x1234"}`), "unknown success_without_transaction"},
		{"long transaction", answered(200, `{"success":true,"transaction":"`+hash+`0"}`), "unknown success_without_transaction"},
		{"transaction without 0x", answered(200, `{"success":true,"transaction":"`+hash[2:]+`00"}`), "unknown success_without_transaction"},
		{"transaction with 0X", answered(200, `{"success":true,"transaction":"0X`+hash[2:]+`"}`), "unknown success_without_transaction"},
		{"transaction not hex", answered(200, `{"success":true,"transaction":"0xg`+hash[3:]+`"}`), "unknown success_without_transaction"},
		{"zero transaction", answered(200, `{"success":true,"transaction":"0x`+strings.Repeat("0", 64)+`"}`), "unknown success_without_transaction"},
		{"transaction of another type", answered(200, `{"success":true,"transaction":7}`), "unknown malformed_answer"},
		{"other network", answered(200, `{"success":true,"transaction":"`+hash+`","network":"eip155:84532"}`), "unknown contradictory_answer"},
		{"other payer", answered(200, `{"success":true,"transaction":"`+hash+`","payer":"`+other+`"}`), "unknown contradictory_answer"},
		{"success and a reason", answered(200, `{"success":true,"transaction":"`+hash+`","errorReason":"settlement_pending"}`), "unknown contradictory_answer"},

		// Verdicts that cannot be read.
		{"success is a string", answered(200, `{"success":"true","transaction":"`+hash+`"}`), "unknown malformed_answer"},
		{"success is null", answered(200, `{"success":null,"transaction":"`+hash+`"}`), "unknown malformed_answer"},
		{"success missing", answered(200, `{"transaction":"`+hash+`"}`), "unknown malformed_answer"},
		{"success missing beside a reason", answered(400, `{"errorReason":"invalid_payload"}`), "unknown malformed_answer"},
		{"success in another case", answered(200, `{"Success":true,"transaction":"`+hash+`"}`), "unknown malformed_answer"},
		{"success twice", answered(200, `{"success":false,"success":true,"transaction":"`+hash+`"}`), "unknown malformed_answer"},
		{"transaction twice", answered(200, `{"success":true,"transaction":"`+hash2+`","transaction":"`+hash+`"}`), "unknown malformed_answer"},
		{"a second value behind", answered(200, settled+`{}`), "unknown malformed_answer"},
		{"cut short", answered(200, settled[:len(settled)-1]), "unknown malformed_answer"},
		{"not UTF-8", answered(200, "{\"success\":true,\"transaction\":\""+hash+"\",\"x\":\"\xff\"}"), "unknown malformed_answer"},
		{"byte order mark", answered(200, "\ufeff"+settled), "unknown malformed_answer"},
		{"reason is a number", answered(200, `{"success":false,"errorReason":7}`), "unknown malformed_answer"},
		{"payer is an object", answered(200, `{"success":false,"errorReason":"invalid_payload","payer":{}}`), "unknown malformed_answer"},
		{"401 with a broken verdict", answered(401, `{"success":"no"}`), "unknown malformed_answer"},
		{"429 with a reason only", answered(429, `{"errorReason":"slow_down"}`), "unknown malformed_answer"},

		// No verdict: the status is all there is.
		{"empty 200", answered(200, ``), "unknown http_200"},
		{"204", answered(204, ``), "unknown http_204"},
		{"200 HTML", answered(200, `<html>"success":true</html>`), "unknown http_200"},
		{"200 other JSON", answered(200, `{"ok":true}`), "unknown http_200"},
		{"200 array", answered(200, `[`+settled+`]`), "unknown http_200"},
		{"200 verify answer", answered(200, `{"isValid":true,"payer":"`+payer+`"}`), "unknown http_200"},
		{"302", answered(302, ``), "unknown http_302"},
		{"400", answered(400, `{"errorType":"invalid_something"}`), "unknown http_400"},
		{"400 of a schema", answered(400, `{"errorType":"invalid_request"}`), "turned_away facilitator_misconfigured invalid_request"},
		{"400 with a word of another type", answered(400, `{"errorType":["unauthorized"]}`), "unknown http_400"},
		{"400 with a word elsewhere", answered(400, `{"error":"unauthorized"}`), "unknown http_400"},
		{"402", answered(402, ``), "unknown http_402"},
		{"404", answered(404, `Not Found`), "turned_away facilitator_misconfigured http_404"},
		{"409", answered(409, `{"errorType":"idempotency_error"}`), "unknown http_409"},
		{"500", answered(500, `{"errorType":"internal_server_error"}`), "unknown http_500"},
		{"502", answered(502, `<html>`), "unknown http_502"},
		{"503 of an edge", answered(503, `upstream connect error`), "unknown http_503"},
		{"504", answered(504, `{"errorType":"timed_out"}`), "unknown http_504"},

		// Turned away by the status.
		{"401, no credentials", answered(401, ``), "turned_away facilitator_misconfigured http_401"},
		{"403, no credentials", answered(403, `<html>"success"</html>`), "turned_away facilitator_misconfigured http_403"},
		{"401, credentials", credentialed(answered(401, `{"errorType":"unauthorized"}`)), "turned_away facilitator_unauthorized http_401"},
		{"403, credentials", credentialed(answered(403, `{"errorType":"forbidden"}`)), "turned_away facilitator_unauthorized http_403"},
		{"429", credentialed(answered(429, `{"errorType":"rate_limit_exceeded"}`)), "turned_away facilitator_unavailable http_429"},
		{"403 with a refusal, no credentials", answered(403, refusal("kyt_risk_detected")), "turned_away facilitator_misconfigured kyt_risk_detected"},
		{"401 with a refusal, no credentials", answered(401, refusal("insufficient_funds")), "turned_away facilitator_misconfigured insufficient_funds"},
		{"unauthorized, no credentials", answered(200, refusal("unauthorized")), "turned_away facilitator_misconfigured unauthorized"},
		{"forbidden, no credentials", answered(403, refusal("forbidden")), "turned_away facilitator_misconfigured forbidden"},
		{"errorType unauthorized, no credentials", answered(400, `{"errorType":"unauthorized"}`), "turned_away facilitator_misconfigured unauthorized"},
		{"401, body cut short", reply{sent: true, status: 401, err: lost}, "unknown connection_lost"},

		// Refused. What every reason comes to is in TestEveryReasonAtEveryStatus.
		{"refusal, null transaction", answered(200, `{"success":false,"errorReason":"insufficient_funds","transaction":null}`), "refused insufficient_funds"},
		{"a reason nobody knows", answered(200, refusal("brand_new_reason")), "unknown brand_new_reason"},

		// Refusals that prove nothing.
		{"no reason", answered(200, `{"success":false}`), "unknown refusal_without_reason"},
		{"empty reason", answered(200, refusal("")), "unknown refusal_without_reason"},
		{"refusal with half a hash", answered(200, refusalWith("insufficient_funds", "0x12")), "unknown insufficient_funds"},
		{"refusal of another payer's", answered(200, `{"success":false,"errorReason":"insufficient_funds","payer":"`+other+`"}`), "unknown contradictory_answer"},
		{"refusal on another network", answered(200, `{"success":false,"errorReason":"insufficient_funds","network":"base"}`), "unknown contradictory_answer"},

		// Pending.
		{"pending", answered(200, pendingA), "unknown pending settlement_pending"},

		// No complete answer.
		{"no URL", reply{err: errNoURL}, "not_sent facilitator_misconfigured no_facilitator"},
		{"credentials unreadable", reply{err: &credentialsError{lost}}, "not_sent facilitator_misconfigured credentials_unreadable"},
		{"credentials unreachable", reply{err: &credentialsError{fmt.Errorf("read: %w", Unreachable(lost))}}, "not_sent facilitator_unavailable credentials_unreachable"},
		{"not connected", reply{err: lost}, "not_sent facilitator_unavailable connect_failed"},
		{"time up before writing", reply{err: lost, expired: true}, "not_sent facilitator_unavailable timeout"},
		{"time up after writing", reply{err: lost, sent: true, expired: true}, "unknown timeout"},
		{"lost after writing", reply{err: lost, sent: true}, "unknown connection_lost"},
		{"answer too long", reply{err: errTooLarge, sent: true, status: 200}, "unknown answer_too_large"},
	}
	for _, row := range rows {
		got, s := settles(row.in)
		if got = strings.TrimSpace(got + " " + s.Reason); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		if s.Class == x402.Moved && (s.Transaction != hash || !strings.EqualFold(s.Payer, payer) || s.Network != network) {
			t.Errorf("%s: receipt %+v", row.name, s)
		}
		if (s.Class == x402.NotSent || s.Class == x402.TurnedAway) && s.Cause == nil {
			t.Errorf("%s: %s without a cause for the log", row.name, s.Class)
		}
	}
}

func TestReasonIsBoundedAndPrintable(t *testing.T) {
	t.Parallel()
	s, _ := classify(answered(200, `{"success":false,"errorReason":"evil\r\nSet-Cookie: x\u0000ü`+strings.Repeat("a", 1000)+`"}`), wanted())
	if want := "evil  Set-Cookie: x?ü"; !strings.HasPrefix(s.Reason, want) || len(s.Reason) > maxReason {
		t.Errorf("reason %q", s.Reason)
	}
	if s.Class != x402.Unknown {
		t.Errorf("class %s", s.Class)
	}
}

// Some facilitators quote the call that they made. Nothing of a signature gets
// into what is logged and kept.
func TestSignatureIsNotKept(t *testing.T) {
	t.Parallel()
	signature := strings.Repeat("0123456789abcdef", 8) + "1c"
	raw, err := hex.DecodeString(signature)
	must(t, err)
	if got := foreign("sig "+base64.StdEncoding.EncodeToString(raw), maxMessage); len(got) > 20 {
		t.Errorf("base64 of a signature: %q", got)
	}
	for _, text := range []string{
		"bad signature 0x" + signature, "args: (" + signature[:64] + ", " + signature[64:128] + ", 28)",
		strings.Repeat("x", maxMessage-50) + signature, strings.ToUpper(signature),
	} {
		var said []any
		for _, member := range []string{"errorMessage", "errorReason", "transaction", "network", "payer"} {
			s, _ := classify(answered(400, fmt.Sprintf(`{"success":false,%q:%q}`, member, text)), wanted())
			said = append(said, s.Reason, s.Cause, s.Payer, s.Network)
		}
		v := judge(answered(200, fmt.Sprintf(`{"isValid":false,"invalidReason":%q}`, text)), wanted())
		all := strings.ToLower(fmt.Sprint(append(said, v.Reason, v.Fault)...))
		for at := range len(signature) - maxDigits {
			if strings.Contains(all, signature[at:at+maxDigits+1]) {
				t.Fatalf("%.20s...: %s", text, all)
			}
		}
	}
	const harmless = "to 0x209693Bc6afc0C5328bA36FaF03C514EF312287C in block 12345678"
	if got := foreign(harmless, 128); got != harmless {
		t.Errorf("an address is cut: %q", got)
	}
}

// recording is one answer of the official facilitator, as it was received.
type recording struct {
	Name, Endpoint string
	Status         int
	Body           json.RawMessage
}

func recordings(t testing.TB) []recording {
	t.Helper()
	b, err := os.ReadFile("testdata/recorded.json")
	must(t, err)
	var all []recording
	must(t, json.Unmarshal(b, &all))
	return all
}

func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"settle good":                   "settled",
		"settle replay-after-settle":    "refused used " + x402.ReasonNonceUsed,
		"settle wrong-value":            "turned_away facilitator_misconfigured invalid_exact_evm_payload_authorization_value_mismatch",
		"settle wrong-payee":            "turned_away facilitator_misconfigured invalid_exact_evm_recipient_mismatch",
		"settle expired":                "refused expired invalid_exact_evm_payload_authorization_valid_before",
		"settle wrong-chain-signature":  "refused invalid_exact_evm_signature",
		"settle insufficient-balance":   "refused invalid_exact_evm_insufficient_balance",
		"settle unsupported-network":    "unknown http_500",
		"settle concurrent-settle-x8/0": "settled",
		"settle concurrent-settle-x8/1": "refused used " + x402.ReasonNonceUsed,
		"settle settleWhileUnmined":     "unknown pending settlement_pending " + hash2,
		"settle retryWhilePending":      "unknown pending settlement_pending " + hash2,
		"settle retryAfterMined":        "settled",
		"settle retryAgain":             "refused used " + x402.ReasonNonceUsed,

		"verify good":                  "valid",
		"verify verifyWhilePending":    "valid",
		"verify replay-after-settle":   "invalid invalid_exact_evm_transaction_simulation_failed",
		"verify wrong-value":           "facilitator_misconfigured",
		"verify over-value":            "facilitator_misconfigured",
		"verify wrong-payee":           "facilitator_misconfigured",
		"verify expired":               "invalid invalid_exact_evm_payload_authorization_valid_before",
		"verify nearly-expired-3s":     "invalid invalid_exact_evm_payload_authorization_valid_before",
		"verify not-yet-valid":         "invalid invalid_exact_evm_payload_authorization_valid_after",
		"verify wrong-chain-signature": "invalid signature invalid_exact_evm_signature",
		"verify garbage-signature":     "invalid signature invalid_exact_evm_signature",
		"verify insufficient-balance":  "invalid invalid_exact_evm_transaction_simulation_failed",
		"verify network-mismatch":      "facilitator_misconfigured",
		"verify unsupported-network":   "facilitator_unavailable",

		"supported supported": "listed",
	}
	have := map[string]string{}
	for _, r := range recordings(t) {
		re := answered(r.Status, string(r.Body))
		said, reason := "listed", ""
		switch r.Endpoint {
		case "settle":
			var s x402.Settlement
			if said, s = settles(re); s.Class != x402.Moved {
				reason = s.Reason + " " + s.Transaction
			}
		case "verify":
			var v x402.Verification
			said, v = verifies(re)
			reason = v.Reason
		case "supported":
			if f := supports(re, network); f != nil {
				reason = f.Error()
			}
		}
		have[r.Endpoint+" "+r.Name] = strings.TrimSpace(said + " " + reason)
	}
	equal(t, "recorded answers", want, have)
}

func TestAfterResend(t *testing.T) {
	t.Parallel()
	first, _ := classify(answered(500, pendingA), wanted())
	for _, row := range []struct {
		name   string
		second reply
		class  x402.Class
		tx     string
	}{
		{"settled under another hash", answered(200, strings.ReplaceAll(settled, hash, hash2)), x402.Moved, hash2},
		{"still pending", answered(500, pendingA), x402.Unknown, hash},
		{"refused", answered(200, refusal("insufficient_funds")), x402.Unknown, hash},
		{"nonce used", answered(200, refusal(x402.ReasonNonceUsed)), x402.Unknown, hash},
		{"unauthorized", answered(http.StatusUnauthorized, ""), x402.Unknown, hash},
		{"not sent", reply{err: errors.New("refused")}, x402.Unknown, hash},
		{"lost", reply{err: errors.New("reset"), sent: true}, x402.Unknown, hash},
	} {
		second, _ := classify(row.second, wanted())
		out := afterResend(first, second)
		if out.Class != row.class || out.Transaction != row.tx || out.NonceUsed || out.Code != "" {
			t.Errorf("%s: got %+v", row.name, out)
		}
		if row.class == x402.Unknown && (out.Reason != "settlement_pending" || out.Cause == nil) {
			t.Errorf("%s: reason %q, cause %v", row.name, out.Reason, out.Cause)
		}
	}
	nameless, _ := classify(answered(500, refusal("settlement_pending")), wanted())
	if out := afterResend(nameless, first); out.Transaction != hash {
		t.Errorf("the hash of the second answer was lost: %+v", out)
	}
}
