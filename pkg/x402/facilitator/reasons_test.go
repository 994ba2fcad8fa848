package facilitator

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// documentedReasons returns the reasons that the file reasons.md lists, grouped by their
// meanings.
func documentedReasons(t testing.TB) map[string][]string {
	t.Helper()
	doc := must(os.ReadFile("reasons.md"))
	words := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(.*?)` \\| (.*?) \\| [^|]+ \\|").FindAllStringSubmatch(string(doc), -1) {
		words[row[2]] = append(words[row[2]], row[1])
	}
	return words
}

// unlistedReasons holds reasons that are not in the table: possible future reasons of
// facilitators, and texts that only look like a word of the closed list.
const unlistedReasons = "|error|ok|brand_new_reason|insufficient_funds_for_gas|INSUFFICIENT_FUNDS|Insufficient_funds|insufficient_funds |" +
	" insufficient_funds|insufficient_fund|x_insufficient_funds|insufficient_balance|invalid_exact_evm_signaturе|invalid_signature|" +
	"invalid_exact_evm_signature\n|signature|nonce_already_used|INVALID_EXACT_EVM_NONCE_ALREADY_USED|expired|SETTLEMENT_PENDING|" +
	"settlement_pending_review|rate_limited_after_send|unauthorized_transfer|execution reverted"

// outcomes has the expected outcomes of /settle and /verify for a reason, if the request
// carries credentials. Each outcome is given for four kinds of status: a status without a
// meaning, 401 or 403, 404 or 405, and 429.
type outcomes struct{ settle, verify [4]string }

// ofPayer ends the expected outcome of a /verify that decides nothing, but gives a reason about
// the payer.
const ofPayer = ", about the payer"

func statusColumn(status int) int {
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

func expectedOutcomes() map[string]outcomes {
	const (
		away                = "turned_away "
		denied, busy, wrong = string(fault.FacilitatorUnauthorized), string(fault.FacilitatorUnavailable), string(fault.FacilitatorMisconfigured)
	)
	all := func(word string) [4]string { return [4]string{word, word, word, word} }
	payers := func(word, at401, at429 string) [4]string { return [4]string{word, at401, word, at429} }
	none := [4]string{busy, denied, wrong, busy} // if the status alone decides: the outcome for each of the four kinds of status
	return map[string]outcomes{
		"refused":                    {payers("refused", away+denied, away+busy), payers("invalid", denied+ofPayer, busy+ofPayer)},
		"signature refused":          {payers("refused", away+denied, away+busy), payers("invalid signature", denied+ofPayer, busy+ofPayer)},
		"expired":                    {payers("refused expired", away+denied, away+busy), payers("invalid", denied+ofPayer, busy+ofPayer)},
		"nonce used":                 {payers("refused used", "unknown", "unknown"), payers("invalid used", denied, busy)},
		"pending":                    {all("unknown pending"), none},
		"turned away: unauthorized":  {all(away + denied), all(denied)},
		"turned away: unavailable":   {all(away + busy), all(busy)},
		"turned away: misconfigured": {all(away + wrong), all(wrong)},
		"doubt":                      {all("unknown"), none},
		"unlisted":                   {[4]string{"unknown", away + denied, away + wrong, away + busy}, none},
	}
}

// settleOutcome classifies an answer to /settle. It returns the outcome as text, and the
// settlement itself.
func settleOutcome(re reply) (outcome string, s x402.Settlement) {
	s, pending := classify(re, network, payer)
	flag := func(is bool, name string) string { return strings.Repeat(name, map[bool]int{true: 1}[is]) }
	words := []string{s.Class.String(), flag(s.Expired, "expired"), flag(s.NonceUsed, "used"), flag(pending, "pending"), string(s.Code)}
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " "), s
}

func verifyOutcome(re reply) (outcome string, v x402.Verification) {
	v = classifyVerification(re, payer)
	switch {
	case v.Fault != nil && (v.Valid || v.Reason != ""):
		return "both a verdict and none", v
	case v.Fault != nil && v.AboutPayer:
		return string(v.Fault.Code) + ofPayer, v
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

// TestEveryReasonAtEveryStatus checks each reason at each status in four forms: as a refusal
// by /settle, as a refusal by /settle with a transaction, as a "no" by /verify, and as an
// error of a platform in front of the facilitator. In an error of a platform, a reason that the
// operator has to deal with must decide. With any other reason, the status alone must decide.
func TestEveryReasonAtEveryStatus(t *testing.T) {
	t.Parallel()
	all, words := expectedOutcomes(), documentedReasons(t)
	words["unlisted"] = strings.Split(unlistedReasons, "|")
	for name, e := range all {
		platform := all["unlisted"]
		if strings.HasPrefix(name, "turned away") {
			platform.settle[0], platform.verify[0] = e.settle[0], e.verify[0]
		}
		for at := range platform.verify {
			if strings.HasSuffix(e.verify[1], ofPayer) {
				platform.verify[at] += ofPayer
			}
		}
		for _, code := range words[name] {
			for _, status := range []int{200, 400, 402, 409, 422, 500, 502, 503, 401, 403, 404, 405, 429} {
				checkReason(t, name, code, status, e, platform)
			}
		}
	}
}

// checkReason classifies answers that give a reason at a status. e holds the expected
// outcomes. platform holds the expected outcomes if a platform in front of the facilitator
// gives the reason.
func checkReason(t *testing.T, name, code string, status int, e, platform outcomes) {
	t.Helper()
	in := fmt.Sprintf("%s: %d %q", name, status, code)
	listed, at := name != "unlisted", statusColumn(status)
	got, s := settleOutcome(withCredentials(answered(status, refusalAnswer(code))))
	if got != e.settle[at] || listed && s.Reason != code || s.Transaction != "" || s.Class == x402.TurnedAway && s.Cause == nil {
		t.Errorf("%s: settle: %s, %+v, want %s", in, got, s, e.settle[at])
	}
	doubt := "unknown"
	if name == "pending" {
		doubt = "unknown pending"
	}
	got, s = settleOutcome(withCredentials(answered(status, refusalWith(code, hash))))
	if got != doubt || listed && s.Reason != code || s.Transaction != hash {
		t.Errorf("%s: settle with a transaction: %s, %+v, want %s", in, got, s, doubt)
	}
	got, v := verifyOutcome(withCredentials(answered(status, fmt.Sprintf(`{"isValid":false,"invalidReason":%q,"payer":%q}`, code, payer))))
	if got != e.verify[at] || v.Fault == nil && v.Reason != code {
		t.Errorf("%s: verify: %s, %+v, want %s", in, got, v, e.verify[at])
	}
	re := withCredentials(answered(status, fmt.Sprintf(`{"errorType":%q}`, code)))
	if got, _ := settleOutcome(re); got != platform.settle[at] {
		t.Errorf("%s: settle, platform: %s, want %s", in, got, platform.settle[at])
	}
	if got, _ := verifyOutcome(re); got != platform.verify[at] {
		t.Errorf("%s: verify, platform: %s, want %s", in, got, platform.verify[at])
	}
}

// TestTableOfReasons compares the table with the document reasons.md. No entry must be in the
// table twice. The document must describe every entry, and the table must have every reason in
// the document. Only the entries that mean doubt may end with a * that covers other words. The
// closed list of refusals must have 18 words.
func TestTableOfReasons(t *testing.T) {
	t.Parallel()
	all, words := expectedOutcomes(), documentedReasons(t)
	described := slices.Concat(slices.Collect(maps.Values(words))...)
	known := map[string]bool{}
	for _, r := range reasons() {
		for _, w := range r.words {
			prefix, many := strings.CutSuffix(w, "*")
			its := func(word string) bool { return word == w || many && strings.HasPrefix(word, prefix) }
			if known[w] || many && r.meaning != doubt || !slices.ContainsFunc(described, its) {
				t.Errorf("%q is in the table twice, or stands for too much, or is not described", w)
			}
			known[w] = true
		}
	}
	for _, word := range described {
		if _, listed := findReason(word); !listed {
			t.Errorf("%q is described, and not in the table", word)
		}
	}
	for meaning := range words {
		if all[meaning] == (outcomes{}) {
			t.Errorf("the document has the meaning %q", meaning)
		}
	}
	equal(t, "words of the closed list", 18, len(words["refused"])+len(words["signature refused"])+len(words["expired"])+len(words["nonce used"]))
}

var wellFormed = regexp.MustCompile(`^0x[0-9a-fA-F]{64}$`)

// checkLoggable checks that a facilitator's text is clipped and printable, so that it may be
// logged and kept.
func checkLoggable(t *testing.T, what, text string) {
	t.Helper()
	if len(text) > maxReason || untrusted.Clip(text, maxReason) != text {
		t.Errorf("%s %q", what, text)
	}
}

// FuzzAnswer gives arbitrary bytes as the answer to /settle, /verify and /supported. It checks
// what the client decides about money against a lenient decoding of the same bytes.
func FuzzAnswer(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(r.Status, []byte(r.Body), false, false)
	}
	const yes = `{"isValid":true,"payer":"` + payer + `"}`
	for status, bodies := range map[int][]string{
		0: {""},
		200: {settled, refusalAnswer("rate_limited"), `{"success":true,"success":false}`, `{"bazaar":{"status":"rejected","code":7}}`, `{"kinds":[]}`,
			yes, strings.ToLower(yes), `{"isValid":true,"payer":"` + other + `"}`, `{"isValid":true,"payer":1}`, `{"isValid":"true"}`, `{"isValid":false}`,
			`{"isValid":true,"invalidReason":"insufficient_funds"}`, `{"payer":"` + payer + `"}`,
			`{"isValid":false,"invalidReason":1}`, `{"isValid":false,"invalidReason":"insufficient_funds","payer":"` + other + `"}`},
		302: {settled, "\"\xc2\"", `{"isValid":true}`},
		400: {yes, `{"errorType":"invalid_request"}`, `{"success":false,"errorReason":"a\u0000` + strings.Repeat("b ", maxReason) + `"}`},
		401: {"", settled}, 403: {refusalAnswer("insufficient_funds")}, 500: {pendingA},
	} {
		for _, body := range bodies {
			f.Add(status, []byte(body), true, false)
			f.Add(status, []byte(body), false, true)
		}
	}
	words := documentedReasons(f)
	f.Fuzz(func(t *testing.T, status int, body []byte, authorized, lost bool) {
		re := reply{sent: true, status: status, body: body, hasCredentials: authorized}
		var lenient map[string]any
		_ = json.Unmarshal(body, &lenient)
		checkSettlement(t, re, lenient, lost, words)
		checkVerification(t, re, lenient)
		if checkSupported(re, network) == nil && (status/100 != 2 || lenient["kinds"] == nil) {
			t.Errorf("supported on %d %q", status, body)
		}
		for _, note := range []string{string(body), base64.StdEncoding.EncodeToString(body)} {
			out := extensionResponses(http.Header{"Extension-Responses": {note}})
			if len(out) > maxExtensions*len(extensionFields()) {
				t.Errorf("%d fields", len(out))
			}
			for k, v := range out {
				checkNote(t, k, v)
				checkLoggable(t, k, v)
			}
		}
	})
}

// checkNote checks the key k and the value v of an entry that extensionResponses has returned.
func checkNote(t *testing.T, k, v string) {
	t.Helper()
	dot := strings.LastIndexByte(k, '.')
	if dot < 1 || dot > maxExtensionName || !isExtension(k[:dot]) || !slices.Contains(extensionFields(), k[dot+1:]) || v == "" {
		t.Errorf("%q: %q", k, v)
	}
}

func checkSettlement(t *testing.T, re reply, lenient map[string]any, lost bool, words map[string][]string) {
	t.Helper()
	if lost {
		re.err, re.body = errors.New("lost"), nil
	}
	s, pending := classify(re, network, payer)
	success, isBool := lenient["success"].(bool)
	tx, _ := lenient["transaction"].(string)
	reason, _ := lenient["errorReason"].(string)
	checkLoggable(t, "reason", s.Reason)
	if s.Transaction != "" && !wellFormed.MatchString(s.Transaction) {
		t.Errorf("transaction %q", s.Transaction)
	}
	if pending && (s.Class != x402.Unknown || success || !isBool) || s.NonceUsed && s.Class != x402.Refused {
		t.Errorf("pending %t: %+v", pending, s)
	}
	switch s.Class {
	case x402.Moved:
		if lost || !success || !wellFormed.MatchString(tx) || s.Transaction != tx || s.Network != network || !strings.EqualFold(s.Payer, payer) {
			t.Errorf("moved on %q: %+v", re.body, s)
		}
	case x402.Refused:
		verdicts := slices.Concat(words["refused"], words["signature refused"], words["expired"], words["nonce used"])
		if lost || !isBool || success || tx != "" || statusColumn(re.status)%2 == 1 || !slices.Contains(verdicts, reason) {
			t.Errorf("refused on %d %q", re.status, re.body)
		}
	case x402.TurnedAway:
		word, _ := lenient["errorType"].(string)
		known := slices.Concat(words["turned away: unauthorized"], words["turned away: unavailable"], words["turned away: misconfigured"])
		byWord := slices.Contains(known, reason) || slices.Contains(known, word)
		if lost || success || tx != "" || !byWord && statusColumn(re.status) == 0 || s.Code == "" {
			t.Errorf("turned away on %d %q", re.status, re.body)
		}
	case x402.NotSent:
		t.Errorf("not sent, and answered, on %d %q", re.status, re.body)
	}
}

// checkVerification checks the result of /verify for any bytes. A signature must be valid only
// if the answer has the boolean true, a 2xx status, no other payer and no reason. It must be
// invalid only if the answer has the boolean false, a reason and no other payer.
func checkVerification(t *testing.T, re reply, lenient map[string]any) {
	t.Helper()
	v := classifyVerification(re, payer)
	valid, isBool := lenient["isValid"].(bool)
	named, isText := lenient["payer"].(string)
	reason, _ := lenient["invalidReason"].(string)
	checkLoggable(t, "reason", v.Reason)
	verdict, contradicts := v.Fault == nil, lenient["payer"] != nil && !isText || named != "" && !strings.EqualFold(named, payer)
	if verdict && (valid != v.Valid || !isBool || valid != (reason == "") || contradicts) ||
		v.Valid && re.status/100 != 2 {
		t.Errorf("%+v on %d %q", v, re.status, re.body)
	}
	if v.Valid && (v.Reason != "" || v.Fault != nil) || !v.Valid && v.Reason == "" && v.Fault == nil {
		t.Errorf("got %+v", v)
	}
}
