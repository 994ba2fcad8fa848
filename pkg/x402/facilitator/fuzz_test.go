package facilitator

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

var wellFormed = regexp.MustCompile(`^0x[0-9a-fA-F]{64}$`)

// malformed are documents that are not JSON as it is read here, each for another
// reason. Every target of this file begins with them.
func malformed() []string {
	return []string{"", "[0", "{ ", `"\b`, "\n", `0 "0`, "\"\xc2\"", "{\"a\v", "{\"a\"\x1e", "{\"a\":\"\",\"b\":\"\n", `{"a":"","b"}`, `{"a":"","a":""}`, `"\n"0`}
}

// FuzzClassify holds the rules that money hangs on against a second, lenient
// reading of the same bytes.
func FuzzClassify(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(r.Status, []byte(r.Body), false, false)
	}
	f.Add(500, []byte(pendingA), true, false)
	f.Add(200, []byte(settled), false, false)
	f.Add(401, []byte(``), true, false)
	f.Add(0, []byte(nil), false, true)
	f.Add(403, []byte(refusal("insufficient_funds")), true, false)
	f.Add(200, []byte(refusal("rate_limited")), true, false)
	f.Add(400, []byte(`{"errorType":"invalid_request"}`), true, false)
	for _, doc := range malformed() {
		f.Add(200, []byte(doc), false, false)
		f.Add(302, []byte(doc), true, false)
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, authorized, lost bool) {
		re := reply{sent: true, status: status, body: body, authorized: authorized}
		if lost {
			re.err = errors.New("lost")
		}
		s, pending := classify(re, wanted())
		var lenient map[string]any
		_ = json.Unmarshal(body, &lenient)
		success, isBool := lenient["success"].(bool)
		tx, _ := lenient["transaction"].(string)
		reason, _ := lenient["errorReason"].(string)

		if len(s.Reason) > maxReason || printable.Clip(s.Reason, maxReason) != s.Reason {
			t.Errorf("reason %q", s.Reason)
		}
		if s.Transaction != "" && !wellFormed.MatchString(s.Transaction) {
			t.Errorf("transaction %q", s.Transaction)
		}
		if pending && (s.Class != x402.Unknown || success || !isBool) {
			t.Errorf("pending: %+v", s)
		}
		if s.NonceUsed && s.Class != x402.Refused {
			t.Errorf("nonce used: %+v", s)
		}
		switch s.Class {
		case x402.Moved:
			if lost || !isBool || !success || !wellFormed.MatchString(tx) || s.Transaction != tx {
				t.Errorf("moved on %q", body)
			}
			if s.Network != network || !strings.EqualFold(s.Payer, payer) {
				t.Errorf("moved for %q on %q", s.Payer, s.Network)
			}
		case x402.Refused:
			verdicts := refusedCodes + " " + signatureCodes + " " + expiredCodes + " " + usedCodes
			if lost || !isBool || success || tx != "" || operators(status) || !slices.Contains(codes(verdicts), reason) {
				t.Errorf("refused on %d %q", status, body)
			}
		case x402.TurnedAway:
			word, _ := lenient["errorType"].(string)
			known := codes(unauthorizedCodes + " " + busyCodes + " " + misconfiguredCodes)
			byWord := slices.Contains(known, reason) || slices.Contains(known, word)
			byStatus := status == 401 || status == 403 || status == 404 || status == 405 || status == 429
			if lost || success || tx != "" || !byWord && !byStatus || s.Code == "" {
				t.Errorf("turned away on %d %q", status, body)
			}
		case x402.NotSent:
			t.Errorf("not sent, and answered, on %d %q", status, body)
		}
	})
}

// FuzzJudge: a yes needs the boolean true, a 2xx, and no other payer.
func FuzzJudge(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(r.Status, []byte(r.Body))
	}
	for _, doc := range malformed() {
		for _, status := range []int{200, 302, 429} {
			f.Add(status, []byte(doc))
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		v := judge(answered(status, string(body)), wanted())
		var lenient map[string]any
		_ = json.Unmarshal(body, &lenient)
		valid, _ := lenient["isValid"].(bool)
		named, has := lenient["payer"].(string)
		if v.Valid && (!valid || status/100 != 2 || (has && named != "" && !strings.EqualFold(named, payer))) {
			t.Errorf("valid on %d %q", status, body)
		}
		if v.Valid && (v.Reason != "" || v.Fault != nil) || !v.Valid && v.Reason == "" && v.Fault == nil {
			t.Errorf("got %+v", v)
		}
		if len(v.Reason) > maxReason || printable.Clip(v.Reason, maxReason) != v.Reason {
			t.Errorf("reason %q", v.Reason)
		}
		if supports(answered(status, string(body)), network) == nil && !strings.Contains(string(body), "kinds") {
			// Escapes in the member's name are legal and rare; read them.
			if _, ok := lenient["kinds"]; !ok {
				t.Errorf("supported on %q", body)
			}
		}
	})
}

// FuzzExtensionResponses: whatever comes is bounded, printable and allowed.
func FuzzExtensionResponses(f *testing.F) {
	f.Add([]byte(`{"bazaar":{"status":"rejected","rejectedReason":"a","reason":"b","code":7}}`), true)
	f.Add([]byte(`{"bazaar":{"status":"success"},"x":1}`), true)
	f.Add([]byte(`!`), false)
	for _, doc := range malformed() {
		f.Add([]byte(doc), true)
	}
	f.Fuzz(func(t *testing.T, doc []byte, encode bool) {
		v := string(doc)
		if encode {
			v = base64.StdEncoding.EncodeToString(doc)
		}
		out := extensionResponses(http.Header{"Extension-Responses": {v}})
		if len(out) > maxExtensions*len(extensionFields()) {
			t.Errorf("%d fields", len(out))
		}
		for k, v := range out {
			dot := strings.LastIndexByte(k, '.')
			if dot < 1 || dot > maxExtensionName || !isCode(k[:dot]) || !strings.Contains("status rejectedReason reason code", k[dot+1:]) {
				t.Errorf("key %q", k)
			}
			if v == "" || len(v) > maxReason || printable.Clip(v, maxReason) != v {
				t.Errorf("value %q", v)
			}
		}
	})
}

// FuzzParseCredentials: never both an error and credentials, and a token that
// is accepted goes into the header as it is.
func FuzzParseCredentials(f *testing.F) {
	f.Add([]byte(`{"token":"abc"}`))
	f.Add([]byte(`{"key_id":"k","key_secret":"` + edSecret() + `"}`))
	f.Add([]byte(`{"key_id":"k","key_secret":"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"}`))
	f.Add([]byte(`{"key_secret":"0"}`))
	for _, doc := range malformed() {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		creds, err := ParseCredentials(doc)
		if (creds == nil) == (err == nil) {
			t.Fatalf("%v, %v", creds, err)
		}
		if err != nil {
			return
		}
		h, err := creds.Authorization(t.Context(), Call{Method: "GET", Host: "h", Path: "/", Random: strings.NewReader("0123456789abcdef")})
		if err != nil || !strings.HasPrefix(h, "Bearer ") || strings.ContainsAny(h[7:], " \r\n") {
			t.Errorf("header %q, %v", h, err)
		}
	})
}
