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

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// got is what a row of the table compares; causes are for logs.
type got struct {
	Class       x402.Class
	Reason      string
	Transaction string
	NonceUsed   bool
	Expired     bool
	Code        fault.Code
	Pending     bool
}

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
	moved := got{Class: x402.Moved, Transaction: hash}
	malformed := got{Class: x402.Unknown, Reason: "malformed_answer"}
	contradictory := got{Class: x402.Unknown, Reason: "contradictory_answer"}
	unfounded := got{Class: x402.Unknown, Reason: "success_without_transaction"}
	byStatus := func(code fault.Code, status int) got {
		return got{Class: x402.TurnedAway, Code: code, Reason: fmt.Sprintf("http_%d", status)}
	}
	turned := func(code fault.Code, reason string) got {
		return got{Class: x402.TurnedAway, Code: code, Reason: reason}
	}
	doubt := func(reason string) got { return got{Class: x402.Unknown, Reason: reason} }
	refused := func(reason string) got { return got{Class: x402.Refused, Reason: reason} }

	rows := []struct {
		name string
		in   reply
		want got
	}{
		// Settled.
		{"success", answered(200, settled), moved},
		{"success, bare", answered(200, `{"success":true,"transaction":"`+hash+`"}`), moved},
		{"success, nulls and unknown members", answered(200, `{"success":true,"transaction":"`+hash+`","network":null,"payer":null,"errorReason":null,"extra":{"success":false},"amount":"1"}`), moved},
		{"success, empty errorReason", answered(200, `{"success":true,"transaction":"`+hash+`","errorReason":""}`), moved},
		{"success, payer in another case", answered(200, `{"success":true,"transaction":"`+hash+`","payer":"`+strings.ToLower(payer)+`"}`), moved},
		{"success, blanks around", answered(200, "\r\n "+settled+" \n"), moved},
		{"success in a 500", answered(500, settled), moved},
		{"success in a 402", answered(402, settled), moved},
		{"success in a 401", answered(401, settled), moved},
		{"success in a 302", answered(302, settled), moved},

		// Success that is not believed.
		{"no transaction", answered(200, `{"success":true}`), unfounded},
		{"empty transaction", answered(200, `{"success":true,"transaction":""}`), unfounded},
		{"null transaction", answered(200, `{"success":true,"transaction":null}`), unfounded},
		{"short transaction", answered(200, `{"success":true,"transaction":"0x1234"}`), unfounded},
		{"long transaction", answered(200, `{"success":true,"transaction":"`+hash+`0"}`), unfounded},
		{"transaction without 0x", answered(200, `{"success":true,"transaction":"`+hash[2:]+`00"}`), unfounded},
		{"transaction with 0X", answered(200, `{"success":true,"transaction":"0X`+hash[2:]+`"}`), unfounded},
		{"transaction not hex", answered(200, `{"success":true,"transaction":"0xg`+hash[3:]+`"}`), unfounded},
		{"zero transaction", answered(200, `{"success":true,"transaction":"0x`+strings.Repeat("0", 64)+`"}`), unfounded},
		{"transaction of another type", answered(200, `{"success":true,"transaction":7}`), malformed},
		{"other network", answered(200, `{"success":true,"transaction":"`+hash+`","network":"eip155:84532"}`), contradictory},
		{"other payer", answered(200, `{"success":true,"transaction":"`+hash+`","payer":"`+other+`"}`), contradictory},
		{"success and a reason", answered(200, `{"success":true,"transaction":"`+hash+`","errorReason":"settlement_pending"}`), contradictory},

		// Verdicts that cannot be read.
		{"success is a string", answered(200, `{"success":"true","transaction":"`+hash+`"}`), malformed},
		{"success is a number", answered(200, `{"success":1,"transaction":"`+hash+`"}`), malformed},
		{"success is null", answered(200, `{"success":null,"transaction":"`+hash+`"}`), malformed},
		{"success missing", answered(200, `{"transaction":"`+hash+`"}`), malformed},
		{"success missing beside a reason", answered(400, `{"errorReason":"invalid_payload"}`), malformed},
		{"success in another case", answered(200, `{"Success":true,"transaction":"`+hash+`"}`), malformed},
		{"success twice", answered(200, `{"success":false,"success":true,"transaction":"`+hash+`"}`), malformed},
		{"transaction twice", answered(200, `{"success":true,"transaction":"`+hash2+`","transaction":"`+hash+`"}`), malformed},
		{"a second value behind", answered(200, settled+`{}`), malformed},
		{"cut short", answered(200, settled[:len(settled)-1]), malformed},
		{"not UTF-8", answered(200, "{\"success\":true,\"transaction\":\""+hash+"\",\"x\":\"\xff\"}"), malformed},
		{"byte order mark", answered(200, "\ufeff"+settled), malformed},
		{"reason is a number", answered(200, `{"success":false,"errorReason":7}`), malformed},
		{"payer is an object", answered(200, `{"success":false,"errorReason":"invalid_payload","payer":{}}`), malformed},
		{"401 with a broken verdict", answered(401, `{"success":"no"}`), malformed},
		{"401 with half a verdict", answered(401, `{"success":tr`), malformed},
		{"429 with a reason only", answered(429, `{"errorReason":"slow_down"}`), malformed},

		// No verdict: the status is all there is.
		{"empty 200", answered(200, ``), doubt("http_200")},
		{"204", answered(204, ``), doubt("http_204")},
		{"200 HTML", answered(200, `<html>"success":true</html>`), doubt("http_200")},
		{"200 other JSON", answered(200, `{"ok":true}`), doubt("http_200")},
		{"200 array", answered(200, `[`+settled+`]`), doubt("http_200")},
		{"200 string", answered(200, `"success"`), doubt("http_200")},
		{"200 verify answer", answered(200, `{"isValid":true,"payer":"`+payer+`"}`), doubt("http_200")},
		{"302", answered(302, ``), doubt("http_302")},
		{"307", answered(307, ``), doubt("http_307")},
		{"400", answered(400, `{"errorType":"invalid_something"}`), doubt("http_400")},
		{"400 of a schema", answered(400, `{"errorType":"invalid_request"}`), turned(fault.FacilitatorMisconfigured, "invalid_request")},
		{"402", answered(402, ``), doubt("http_402")},
		{"404", answered(404, `Not Found`), byStatus(fault.FacilitatorMisconfigured, 404)},
		{"405", answered(405, ``), byStatus(fault.FacilitatorMisconfigured, 405)},
		{"409", answered(409, `{"errorType":"idempotency_error"}`), doubt("http_409")},
		{"500", answered(500, `{"errorType":"internal_server_error"}`), doubt("http_500")},
		{"502", answered(502, `<html>`), doubt("http_502")},
		{"503 of an edge", answered(503, `upstream connect error`), doubt("http_503")},
		{"504", answered(504, `{"errorType":"timed_out"}`), doubt("http_504")},

		// Turned away by the status.
		{"401, no credentials", answered(401, ``), byStatus(fault.FacilitatorMisconfigured, 401)},
		{"403, no credentials", answered(403, `<html>"success"</html>`), byStatus(fault.FacilitatorMisconfigured, 403)},
		{"401, credentials", credentialed(answered(401, `{"errorType":"unauthorized"}`)), byStatus(fault.FacilitatorUnauthorized, 401)},
		{"403, credentials", credentialed(answered(403, `{"errorType":"forbidden"}`)), byStatus(fault.FacilitatorUnauthorized, 403)},
		{"429", credentialed(answered(429, `{"errorType":"rate_limit_exceeded"}`)), byStatus(fault.FacilitatorUnavailable, 429)},
		{"403 with a refusal, no credentials", answered(403, refusal("kyt_risk_detected")), turned(fault.FacilitatorMisconfigured, "kyt_risk_detected")},
		{"401 with a refusal, no credentials", answered(401, refusal("insufficient_funds")), turned(fault.FacilitatorMisconfigured, "insufficient_funds")},
		{"unauthorized, no credentials", answered(200, refusal("unauthorized")), turned(fault.FacilitatorMisconfigured, "unauthorized")},
		{"forbidden, no credentials", answered(403, refusal("forbidden")), turned(fault.FacilitatorMisconfigured, "forbidden")},
		{"errorType unauthorized, no credentials", answered(400, `{"errorType":"unauthorized"}`), turned(fault.FacilitatorMisconfigured, "unauthorized")},
		{"401, body cut short", reply{sent: true, status: 401, err: lost}, doubt("connection_lost")},

		// Refused. What every reason comes to is in TestEveryReasonAtEveryStatus.
		{"refusal, null transaction", answered(200, `{"success":false,"errorReason":"insufficient_funds","transaction":null}`), refused("insufficient_funds")},
		{"a reason nobody knows", answered(200, refusal("brand_new_reason")), doubt("brand_new_reason")},

		// Refusals that prove nothing.
		{"no reason", answered(200, `{"success":false}`), doubt("refusal_without_reason")},
		{"empty reason", answered(200, refusal("")), doubt("refusal_without_reason")},
		{"null reason", answered(200, `{"success":false,"errorReason":null}`), doubt("refusal_without_reason")},
		{"refusal with half a hash", answered(200, refusalWith("insufficient_funds", "0x12")), doubt("insufficient_funds")},
		{"refusal of another payer's", answered(200, `{"success":false,"errorReason":"insufficient_funds","payer":"`+other+`"}`), contradictory},
		{"refusal on another network", answered(200, `{"success":false,"errorReason":"insufficient_funds","network":"base"}`), contradictory},

		// Pending.
		{"pending", answered(200, pendingA), got{Class: x402.Unknown, Reason: "settlement_pending", Transaction: hash, Pending: true}},

		// No complete answer.
		{"no URL", reply{err: errNoURL}, got{Class: x402.NotSent, Code: fault.FacilitatorMisconfigured, Reason: "no_facilitator"}},
		{"credentials unreadable", reply{err: &credentialsError{lost}}, got{Class: x402.NotSent, Code: fault.FacilitatorMisconfigured, Reason: "credentials_unreadable"}},
		{"credentials unreachable", reply{err: &credentialsError{fmt.Errorf("read: %w", Unreachable(lost))}}, got{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "credentials_unreachable"}},
		{"not connected", reply{err: lost}, got{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "connect_failed"}},
		{"time up before writing", reply{err: lost, expired: true}, got{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "timeout"}},
		{"time up after writing", reply{err: lost, sent: true, expired: true}, doubt("timeout")},
		{"lost after writing", reply{err: lost, sent: true}, doubt("connection_lost")},
		{"answer too long", reply{err: errTooLarge, sent: true, status: 200}, doubt("answer_too_large")},
	}
	for _, row := range rows {
		s, pending := classify(row.in, wanted())
		have := got{s.Class, s.Reason, s.Transaction, s.NonceUsed, s.Expired, s.Code, pending}
		equal(t, row.name, row.want, have)
		if s.Class == x402.Moved && (!strings.EqualFold(s.Payer, payer) || s.Network != network) {
			t.Errorf("%s: receipt names payer %q on %q", row.name, s.Payer, s.Network)
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
	signature := strings.Repeat("0123456789aBcDeF", 8) + "1c"
	raw, err := hex.DecodeString(signature)
	must(t, err)
	if got := foreign("sig "+base64.StdEncoding.EncodeToString(raw), maxMessage); len(got) > 20 {
		t.Errorf("base64 of a signature: %q", got)
	}
	quoted := func(member, text, said string) {
		t.Helper()
		said = strings.ToLower(said)
		for at := 0; at+maxDigits < len(signature); at++ {
			if part := strings.ToLower(signature[at : at+maxDigits+1]); strings.Contains(said, part) {
				t.Fatalf("%s of %.20s...: %s", member, text, said)
			}
		}
	}
	for _, text := range []string{
		"bad signature 0x" + signature, "args: (" + signature[:64] + ", " + signature[64:128] + ", 28)",
		strings.Repeat("x", maxMessage-50) + signature, strings.ToUpper(signature),
	} {
		for _, member := range []string{"errorMessage", "errorReason", "transaction", "network", "payer"} {
			s, _ := classify(answered(400, fmt.Sprintf(`{"success":false,"errorReason":"x",%q:%q}`, member, text)), wanted())
			if member == "errorReason" {
				s, _ = classify(answered(400, fmt.Sprintf(`{"success":false,%q:%q}`, member, text)), wanted())
			}
			quoted(member, text, fmt.Sprint(s.Reason, s.Cause, s.Payer, s.Network))
		}
		v := judge(answered(200, fmt.Sprintf(`{"isValid":false,"invalidReason":%q}`, text)), wanted())
		quoted("invalidReason", text, fmt.Sprint(v.Reason, v.Fault))
	}
	if got := foreign("to 0x209693Bc6afc0C5328bA36FaF03C514EF312287C in block 12345678", 128); !strings.Contains(got, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C in block 12345678") {
		t.Errorf("an address is cut: %q", got)
	}
}

// recording is one answer of the official facilitator, as it was received.
type recording struct {
	Name     string          `json:"name"`
	Endpoint string          `json:"endpoint"`
	Status   int             `json:"status"`
	Body     json.RawMessage `json:"body"`
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
	const (
		unmined = hash2
		valid   = "valid"
	)
	want := map[string]string{
		"settle good":                   "settled ",
		"settle replay-after-settle":    "refused " + x402.ReasonNonceUsed,
		"settle wrong-value":            "turned_away invalid_exact_evm_payload_authorization_value_mismatch",
		"settle wrong-payee":            "turned_away invalid_exact_evm_recipient_mismatch",
		"settle expired":                "refused invalid_exact_evm_payload_authorization_valid_before",
		"settle wrong-chain-signature":  "refused invalid_exact_evm_signature",
		"settle insufficient-balance":   "refused invalid_exact_evm_insufficient_balance",
		"settle unsupported-network":    "unknown http_500",
		"settle concurrent-settle-x8/0": "settled ",
		"settle concurrent-settle-x8/1": "refused " + x402.ReasonNonceUsed,
		"settle settleWhileUnmined":     "unknown settlement_pending " + unmined,
		"settle retryWhilePending":      "unknown settlement_pending " + unmined,
		"settle retryAfterMined":        "settled ",
		"settle retryAgain":             "refused " + x402.ReasonNonceUsed,

		"verify good":                  valid,
		"verify verifyWhilePending":    valid,
		"verify replay-after-settle":   "invalid invalid_exact_evm_transaction_simulation_failed",
		"verify wrong-value":           string(fault.FacilitatorMisconfigured),
		"verify over-value":            string(fault.FacilitatorMisconfigured),
		"verify wrong-payee":           string(fault.FacilitatorMisconfigured),
		"verify expired":               "invalid invalid_exact_evm_payload_authorization_valid_before",
		"verify nearly-expired-3s":     "invalid invalid_exact_evm_payload_authorization_valid_before",
		"verify not-yet-valid":         "invalid invalid_exact_evm_payload_authorization_valid_after",
		"verify wrong-chain-signature": "invalid invalid_exact_evm_signature",
		"verify garbage-signature":     "invalid invalid_exact_evm_signature",
		"verify insufficient-balance":  "invalid invalid_exact_evm_transaction_simulation_failed",
		"verify network-mismatch":      string(fault.FacilitatorMisconfigured),
		"verify unsupported-network":   string(fault.FacilitatorUnavailable),

		"supported supported": "listed",
	}
	have := map[string]string{}
	for _, r := range recordings(t) {
		re := answered(r.Status, string(r.Body))
		var v string
		switch r.Endpoint {
		case "settle":
			s, _ := classify(re, wanted())
			v = s.Class.String() + " " + s.Reason
			if s.Class == x402.Unknown && s.Transaction != "" {
				v += " " + s.Transaction
			}
		case "verify":
			switch j := judge(re, wanted()); {
			case j.Fault != nil:
				v = string(j.Fault.Code)
			case j.Valid:
				v = valid
			default:
				v = "invalid " + j.Reason
			}
		case "supported":
			v = "listed"
			if f := supports(re, network); f != nil {
				v = f.Error()
			}
		}
		have[r.Endpoint+" "+r.Name] = v
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
