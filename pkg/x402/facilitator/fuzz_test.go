package facilitator

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

var wellFormed = regexp.MustCompile(`^0x[0-9a-fA-F]{64}$`)

// said holds a facilitator's text to what may be logged and kept.
func said(t *testing.T, what, text string) {
	t.Helper()
	if len(text) > maxReason || printable.Clip(text, maxReason) != text {
		t.Errorf("%s %q", what, text)
	}
}

// FuzzAnswer reads any bytes as the answer to each of the calls, and holds the rules
// that money hangs on against a second, lenient reading of the same bytes.
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
	words := documented(f)
	f.Fuzz(func(t *testing.T, status int, body []byte, authorized, lost bool) {
		re := reply{sent: true, status: status, body: body, authorized: authorized}
		var lenient map[string]any
		_ = json.Unmarshal(body, &lenient)
		settlement(t, re, lenient, lost, words)
		verification(t, re, lenient)
		if supports(re, network) == nil && (status/100 != 2 || lenient["kinds"] == nil) {
			t.Errorf("supported on %d %q", status, body)
		}
		for _, note := range []string{string(body), base64.StdEncoding.EncodeToString(body)} {
			out := extensionResponses(http.Header{"Extension-Responses": {note}})
			if len(out) > maxExtensions*len(extensionFields()) {
				t.Errorf("%d fields", len(out))
			}
			for k, v := range out {
				dot := strings.LastIndexByte(k, '.')
				if dot < 1 || dot > maxExtensionName || !isExtension(k[:dot]) || !slices.Contains(extensionFields(), k[dot+1:]) || v == "" {
					t.Errorf("%q: %q", k, v)
				}
				said(t, k, v)
			}
		}
	})
}

func settlement(t *testing.T, re reply, lenient map[string]any, lost bool, words map[string][]string) {
	t.Helper()
	if lost {
		re.err, re.body = errors.New("lost"), nil
	}
	s, pending := classify(re, network, payer)
	success, isBool := lenient["success"].(bool)
	tx, _ := lenient["transaction"].(string)
	reason, _ := lenient["errorReason"].(string)
	said(t, "reason", s.Reason)
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
		if lost || !isBool || success || tx != "" || column(re.status)%2 == 1 || !slices.Contains(verdicts, reason) {
			t.Errorf("refused on %d %q", re.status, re.body)
		}
	case x402.TurnedAway:
		word, _ := lenient["errorType"].(string)
		known := slices.Concat(words["turned away: unauthorized"], words["turned away: unavailable"], words["turned away: misconfigured"])
		byWord := slices.Contains(known, reason) || slices.Contains(known, word)
		if lost || success || tx != "" || !byWord && column(re.status) == 0 || s.Code == "" {
			t.Errorf("turned away on %d %q", re.status, re.body)
		}
	case x402.NotSent:
		t.Errorf("not sent, and answered, on %d %q", re.status, re.body)
	}
}

// verification: a yes needs the boolean true, a 2xx, and neither another payer nor a reason;
// a no needs the boolean false, a reason, and no other payer.
func verification(t *testing.T, re reply, lenient map[string]any) {
	t.Helper()
	v := judge(re, payer)
	valid, isBool := lenient["isValid"].(bool)
	named, isText := lenient["payer"].(string)
	reason, _ := lenient["invalidReason"].(string)
	said(t, "reason", v.Reason)
	verdict, contradicts := v.Fault == nil, lenient["payer"] != nil && !isText || named != "" && !strings.EqualFold(named, payer)
	if verdict && (valid != v.Valid || !isBool || valid != (reason == "") || contradicts) ||
		v.Valid && re.status/100 != 2 {
		t.Errorf("%+v on %d %q", v, re.status, re.body)
	}
	if v.Valid && (v.Reason != "" || v.Fault != nil) || !v.Valid && v.Reason == "" && v.Fault == nil {
		t.Errorf("got %+v", v)
	}
}

// FuzzParseCredentials: never both an error and credentials, and a token that
// is accepted goes into the header as it is.
func FuzzParseCredentials(f *testing.F) {
	for _, doc := range []string{
		`{"token":"abc"}`, `{"key_id":"k","key_secret":"` + edSecret() + `"}`, `{"key_secret":"0"}`, `{"a":"","a":""}`,
		`{"key_id":"k","key_secret":"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		creds, err := ParseCredentials(doc)
		if (creds.authorize == nil) == (err == nil) {
			t.Fatalf("%v, %v", creds, err)
		}
		if err != nil {
			return
		}
		h, err := creds.Authorization(httptest.NewRequest(http.MethodGet, "/", nil), time.Now())
		if err != nil || !strings.HasPrefix(h, "Bearer ") || strings.ContainsAny(h[7:], " \r\n") {
			t.Errorf("header %q, %v", h, err)
		}
	})
}
