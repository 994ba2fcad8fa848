package facilitator

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func refusalAnswer(reason string) string {
	return fmt.Sprintf(`{"success":false,"errorReason":%q,"transaction":"","network":%q,"payer":%q}`, reason, network, payer)
}

func refusalWith(reason, transaction string) string {
	return fmt.Sprintf(`{"success":false,"errorReason":%q,"transaction":%q}`, reason, transaction)
}

func answered(status int, body string) reply {
	return reply{sent: true, status: status, body: []byte(body)}
}

func withCredentials(r reply) reply { r.hasCredentials = true; return r }

// settleText returns the outcome and reason of a reply to /settle as text. It adds "about the
// payer" if the reason is about the payer; after such a reply, no second facilitator is asked.
// It adds "no verdict" if the reply brought no decision.
func settleText(t *testing.T, re reply) string {
	t.Helper()
	outcome, s := settleOutcome(re)
	if s.Class == x402.Moved && (s.Transaction != hash || !strings.EqualFold(s.Payer, payer) || s.Network != network) {
		t.Errorf("%d %q: receipt %+v", re.status, re.body, s)
	}
	if (s.Class == x402.NotSent || s.Class == x402.TurnedAway) && s.Cause == nil {
		t.Errorf("%d %q: %s without a cause for the log", re.status, re.body, s.Class)
	}
	said := strings.TrimSpace(outcome + " " + s.Reason)
	if s.AboutPayer {
		said += ", about the payer"
	}
	if s.NoDecision {
		said += ", no verdict"
	}
	return said
}

// TestClassifyByBody checks bodies that have the same meaning at every status.
func TestClassifyByBody(t *testing.T) {
	t.Parallel()
	moved := func(transaction, more string) string {
		return `{"success":true,"transaction":"` + transaction + `"` + more + `}`
	}
	for want, bodies := range map[string][]string{
		"settled": {
			settled, moved(hash, ""), moved(hash, `,"errorReason":""`), moved(hash, `,"payer":"`+strings.ToLower(payer)+`"`),
			moved(hash, `,"network":null,"payer":null,"errorReason":null,"extra":{"success":false},"amount":"1"`), "\r\n " + settled + " \n",
		},
		"unknown success_without_transaction": {
			`{"success":true}`, moved("", ""), moved("0x1234", ""), moved(hash+"0", ""), moved(hash[2:]+"00", ""), moved("0X"+hash[2:], ""),
			moved("0xg"+hash[3:], ""), moved("0x"+strings.Repeat("0", 64), ""),
		},
		"unknown contradictory_answer": {
			moved(hash, `,"network":"eip155:84532"`), moved(hash, `,"payer":"`+other+`"`), moved(hash, `,"errorReason":"settlement_pending"`),
			`{"success":false,"errorReason":"insufficient_funds","payer":"` + other + `"}`,
			`{"success":false,"errorReason":"insufficient_funds","network":"base"}`,
		},
		"unknown malformed_answer, no verdict": {
			`{"success":true,"transaction":7}`, `{"success":"true","transaction":"` + hash + `"}`, `{"success":null}`, `{"success":"no"}`,
			`{"transaction":"` + hash + `"}`, `{"errorReason":"invalid_payload"}`, `{"Success":true,"transaction":"` + hash + `"}`,
			`{"success":false,"success":true,"transaction":"` + hash + `"}`, moved(hash2, `,"transaction":"`+hash+`"`),
			settled + `{}`, settled[:len(settled)-1], moved(hash, ",\"x\":\"\xff\""), "\ufeff" + settled,
			`{"success":false,"errorReason":7}`, `{"success":false,"errorReason":"invalid_payload","payer":{}}`,
		},
	} {
		for _, body := range bodies {
			for _, status := range []int{200, 302, 400, 401, 402, 404, 429, 500} {
				if got := settleText(t, answered(status, body)); got != want {
					t.Errorf("%d %q: %s, want %s", status, body, got, want)
				}
			}
		}
	}
}

// TestClassifyByStatus checks, for each of the three calls, that the status decides if the
// body says nothing about the payment.
func TestClassifyByStatus(t *testing.T) {
	t.Parallel()
	const denied, wrong = string(fault.FacilitatorUnauthorized), string(fault.FacilitatorMisconfigured)
	unlisted := expectedOutcomes()["unlisted"]
	for status := 100; status < 600; status++ {
		settle, verify := unlisted.settle[statusColumn(status)], unlisted.verify[statusColumn(status)]
		if status/100 == 3 {
			verify = wrong
		}
		for _, body := range []string{
			"", `<html>"success":true</html>`, `[` + settled + `]`, `"success"`, `{"error":"unauthorized"}`, `{"errorType":["unauthorized"]}`,
		} {
			checkStatus(t, withCredentials(answered(status, body)), status, settle, verify)
			settle := strings.ReplaceAll(settle, denied, wrong)
			verify := strings.ReplaceAll(verify, denied, wrong)
			checkStatus(t, answered(status, body), status, settle, verify)
		}
	}
}

// checkStatus checks, for each of the three calls, the meaning of a reply whose body says
// nothing about the payment. settle is the expected outcome of /settle. verify is the expected
// outcome of both /verify and /supported.
func checkStatus(t *testing.T, re reply, status int, settle, verify string) {
	t.Helper()
	want := fmt.Sprintf("%s http_%d", settle, status)
	if settle == "unknown" {
		want += ", no verdict"
	}
	if got := settleText(t, re); got != want {
		t.Errorf("settle: %d %q: %s, want %s", status, re.body, got, want)
	}
	if got, _ := verifyOutcome(re); got != verify {
		t.Errorf("verify: %d %q: %s, want %s", status, re.body, got, verify)
	}
	if f := checkSupported(re, network); f == nil || string(fault.From(f).Code) != verify {
		t.Errorf("supported: %d %q: %v, want %s", status, re.body, f, verify)
	}
}

// TestClassify checks replies that the other tests leave out. TestEveryReasonAtEveryStatus
// covers every reason. TestNothingIsSent and TestSettleAgainstBadPeers cover requests without
// an answer.
func TestClassify(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		in   reply
		want string
	}{
		"a refusal in a 403": {answered(403, refusalAnswer("kyt_risk_detected")),
			"turned_away facilitator_misconfigured kyt_risk_detected, about the payer"},
		"a refusal, by a platform": {answered(403, `{"errorType":"kyt_risk_detected"}`),
			"turned_away facilitator_misconfigured http_403, about the payer"},
		"a refusal, by a platform, 500": {answered(500, `{"errorType":"kyt_risk_detected"}`),
			"unknown http_500, about the payer, no verdict"},
		"a refusal with a transaction": {answered(200, refusalWith("insufficient_funds", hash)), "unknown insufficient_funds, about the payer"},
		"half a hash":                  {answered(200, refusalWith("insufficient_funds", "0x12")), "unknown insufficient_funds, about the payer"},
		"null transaction":             {answered(200, `{"success":false,"errorReason":"kyt_risk_detected","transaction":null}`), "refused kyt_risk_detected"},
		"unauthorized, no credentials": {answered(200, refusalAnswer("unauthorized")), "turned_away facilitator_misconfigured unauthorized"},
		"unauthorized, by a platform":  {answered(400, `{"errorType":"unauthorized"}`), "turned_away facilitator_misconfigured unauthorized"},
		"rate-limited, no credentials": {answered(429, refusalAnswer("rate_limited")), "turned_away facilitator_unavailable rate_limited"},
		"a new word":                   {answered(500, refusalAnswer("Oops!")), "unknown Oops!"},
		"no reason":                    {answered(200, `{"success":false}`), "unknown refusal_without_reason"},
		"not connected":                {reply{err: errors.New("refused")}, "not_sent facilitator_unavailable connect_failed"},
	} {
		t.Run(name, func(t *testing.T) { equal(t, "outcome", row.want, settleText(t, row.in)) })
	}
	for body, want := range map[string]string{
		`{"isValid":true}`: "valid", `{"isValid":false,"invalidReason":"insufficient_funds"}`: "invalid", // both verdicts count although they name no payer
	} {
		if got, v := verifyOutcome(answered(200, body)); got != want {
			t.Errorf("verify: %s: %s, %+v, want %s", body, got, v, want)
		}
	}
	s, _ := classify(answered(400, `{"success":false,"errorMessage":"out of gas"}`), network, payer)
	equal(t, "cause", "out of gas", fmt.Sprint(s.Cause))
}

// TestSignatureIsNotKept plays answers that quote a signature, as some facilitators do when
// they quote the call that they made. No fragment of the signature that is longer than an
// address must be logged or kept. The test also checks that loggableText clips a text, makes
// it printable, and leaves an address as it is.
func TestSignatureIsNotKept(t *testing.T) {
	t.Parallel()
	signature := strings.Repeat("0123456789abcdef", 8) + "1c"
	raw := must(hex.DecodeString(signature))
	if got, want := loggableText("evil\r\nSet-Cookie: x\u0000ü"+strings.Repeat("a ", maxReason), 27), "evil  Set-Cookie: x?üa …"; got != want {
		t.Errorf("not printable, or bounded: %q", got)
	}
	if got := loggableText("sig "+base64.StdEncoding.EncodeToString(raw), maxMessage); len(got) > 20 {
		t.Errorf("base64 of a signature: %q", got)
	}
	for _, text := range []string{
		"bad signature 0x" + signature, signature[:maxDigits+2], "args: (" + signature[:64] + ", " + signature[64:128] + ", 28)",
		strings.Repeat("x", maxMessage-50) + signature, strings.ToUpper(signature),
	} {
		var said []any
		for _, member := range []string{"errorMessage", "errorReason", "transaction", "network", "payer"} {
			s, _ := classify(answered(400, fmt.Sprintf(`{"success":false,%q:%q}`, member, text)), network, payer)
			said = append(said, s.Reason, s.Cause, s.Payer, s.Network)
		}
		v := classifyVerification(answered(200, fmt.Sprintf(`{"isValid":false,"invalidReason":%q,"payer":%[1]q}`, text)), payer)
		all := strings.ToLower(fmt.Sprint(append(said, v.Reason, v.Fault)...))
		for at := range len(signature) - maxDigits {
			if strings.Contains(all, signature[at:at+maxDigits+1]) {
				t.Fatalf("%.20s...: %s", text, all)
			}
		}
	}
	const harmless = "to 0x209693Bc6afc0C5328bA36FaF03C514EF312287C in block 12345678"
	if got := loggableText(harmless, 128); got != harmless {
		t.Errorf("an address is cut: %q", got)
	}
}

// recording is one answer of the official facilitator, as it was received, and its expected
// meaning.
type recording struct {
	Name, Endpoint, Want string
	Status               int
	Body                 json.RawMessage
}

func recordings(t testing.TB) (all []recording) {
	t.Helper()
	if err := json.Unmarshal(must(os.ReadFile("testdata/recorded.json")), &all); err != nil || len(all) != 29 {
		t.Fatalf("%d recordings, %v", len(all), err)
	}
	return all
}

func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	for _, r := range recordings(t) {
		t.Run(r.Endpoint+" "+r.Name, func(t *testing.T) {
			re := answered(r.Status, string(r.Body))
			said, reason := "listed", ""
			switch r.Endpoint {
			case "settle":
				var s x402.Settlement
				if said, s = settleOutcome(re); s.Class != x402.Moved {
					reason = s.Reason + " " + s.Transaction
				}
			case "verify":
				var v x402.Verification
				said, v = verifyOutcome(re)
				reason = v.Reason
			case "supported":
				if f := checkSupported(re, network); f != nil {
					reason = f.Error()
				}
			}
			equal(t, "outcome", r.Want, strings.TrimSpace(said+" "+reason))
		})
	}
}

func TestSupports(t *testing.T) {
	t.Parallel()
	const kind = `{"x402Version":2,"scheme":"exact","network":"eip155:8453"}`
	for kinds, want := range map[string]fault.Code{
		`[` + kind + `]`: "",
		`[7,{"x402Version":"2"},{"x402Version":1,"scheme":"exact","network":"base"},` + kind + `]`: "",
		`[{"x402Version":1,"scheme":"exact","network":"eip155:8453"}]`:                             fault.FacilitatorMisconfigured,
		`[{"x402Version":2,"scheme":"exact","network":"eip155:1"}]`:                                fault.FacilitatorMisconfigured,
		`[{"x402Version":2,"scheme":"upto","network":"eip155:8453"}]`:                              fault.FacilitatorMisconfigured,
		`[]`: fault.FacilitatorMisconfigured, `"all"`: fault.FacilitatorUnavailable,
	} {
		f := checkSupported(answered(200, `{"extensions":[],"kinds":`+kinds+`}`), network)
		if (f == nil) != (want == "") || f != nil && fault.From(f).Code != want {
			t.Errorf("%s: %v, want %q", kinds, f, want)
		}
	}
	if f := checkSupported(answered(404, `{"kinds":[`+kind+`]}`), network); f == nil || fault.From(f).Code != fault.FacilitatorMisconfigured {
		t.Errorf("listed in a 404: %v", f)
	}
}

func encodeNote(note string) string { return base64.StdEncoding.EncodeToString([]byte(note)) }

func TestExtensionResponses(t *testing.T) {
	t.Parallel()
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprintf(`"e%02d":{"status":"success"}`, i)
	}
	kept, long := map[string]string{}, strings.Repeat("z ", maxReason)[:maxReason-3]+"…"
	for i := range maxExtensions {
		kept[fmt.Sprintf("e%02d.status", i)] = "success"
	}
	for note, want := range map[string]map[string]string{
		`{"bazaar":{"status":"success"}}`: {"bazaar.status": "success"},
		`{"bazaar":{"status":"rejected","rejectedReason":"a","reason":"b","code":7,"trace":"secret"},"other":{"code":"c"}}`: {
			"bazaar.status": "rejected", "bazaar.rejectedReason": "a", "bazaar.reason": "b", "bazaar.code": "7", "other.code": "c"},
		`{"bazaar":{"reason":"a\r\nbü"}}`:                                                             {"bazaar.reason": "a  bü"},
		`{"bazaar":{"reason":"` + strings.Repeat("z ", 500) + `"}}`:                                   {"bazaar.reason": long},
		`{"bazaar":{"reason":"bad 0x` + strings.Repeat("Ab1", 30) + `"}}`:                             {"bazaar.reason": "bad 0xAb1Ab1..."},
		"{" + strings.ReplaceAll(strings.Join(many, ","), `"e`, `"!e`) + `,"x":{"status":"success"}}`: {"x.status": "success"},
		"{" + strings.Join(many, ",") + "}":                                                           kept,
		`{"bazaar":"success","x":{"status":"success"}}`:                                               {"x.status": "success"},
		`{"bazaar":{"status":{"a":1},"reason":["x"],"code":true,"rejectedReason":null}}`:              nil,
		`{"` + strings.Repeat("ab", 30) + `":{"status":"success"}}`:                                   nil,
		`{"ba\nzaar":{"status":"success"}}`:                                                           nil,
		`{"` + strings.Repeat("a", 100) + `":{"status":"success"}}`:                                   nil,
		`{"bazaar":{"status":"success"},"bazaar":{"status":"rejected"}}`:                              nil,
		`{"bazaar":{"status":"success"},"x":"` + strings.Repeat("a", maxExtensionHeader) + `"}`:       nil,
		"success": nil, `[{"status":"success"}]`: nil,
	} {
		for _, value := range []string{encodeNote(note), strings.TrimRight(encodeNote(note), "=")} {
			if got := extensionResponses(http.Header{"Extension-Responses": {value}}); !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", note, got, want)
			}
		}
	}
	one := encodeNote(`{"a":{"status":"x"}}`)
	for _, values := range [][]string{nil, {"{}"}, {one, one}} {
		if got := extensionResponses(http.Header{"Extension-Responses": values}); len(got) > 0 {
			t.Errorf("%q: %v", values, got)
		}
	}
}
