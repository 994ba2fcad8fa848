package facilitator

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	const (
		yes = `{"isValid":true,"payer":"` + payer + `"}`
		no  = `{"isValid":false,"invalidReason":"invalid_exact_evm_signature","payer":"` + payer + `"}`
	)
	lost := errors.New("reset")
	for _, row := range []struct {
		name   string
		in     reply
		valid  bool
		reason string
		code   fault.Code
	}{
		{"yes", answered(200, yes), true, "", ""},
		{"yes without payer", answered(200, `{"isValid":true}`), true, "", ""},
		{"yes, payer in another case", answered(200, strings.ToLower(strings.ReplaceAll(yes, "isValid", "@"))), false, "", fault.FacilitatorUnavailable},
		{"yes, lower-case payer", answered(200, `{"isValid":true,"payer":"`+strings.ToLower(payer)+`"}`), true, "", ""},
		{"yes for another payer", answered(200, `{"isValid":true,"payer":"`+other+`"}`), false, "", fault.FacilitatorUnavailable},
		{"yes and a reason", answered(200, `{"isValid":true,"invalidReason":"insufficient_funds"}`), false, "", fault.FacilitatorUnavailable},
		{"no for another payer", answered(200, `{"isValid":false,"invalidReason":"insufficient_funds","payer":"`+other+`"}`), false, "", fault.FacilitatorUnavailable},
		{"yes in a 400", answered(400, yes), false, "", fault.FacilitatorUnavailable},
		{"yes in a 401", answered(401, yes), false, "", fault.FacilitatorMisconfigured},
		{"no in a 200", answered(200, no), false, "invalid_exact_evm_signature", ""},
		{"no without reason", answered(200, `{"isValid":false}`), false, "", fault.FacilitatorUnavailable},
		{"isValid is a string", answered(200, `{"isValid":"true"}`), false, "", fault.FacilitatorUnavailable},
		{"isValid is null", answered(200, `{"isValid":null}`), false, "", fault.FacilitatorUnavailable},
		{"isValid missing", answered(200, `{"payer":"`+payer+`"}`), false, "", fault.FacilitatorUnavailable},
		{"isValid twice", answered(200, `{"isValid":false,"isValid":true}`), false, "", fault.FacilitatorUnavailable},
		{"reason of another type", answered(200, `{"isValid":false,"invalidReason":1}`), false, "", fault.FacilitatorUnavailable},
		{"payer of another type", answered(200, `{"isValid":true,"payer":1}`), false, "", fault.FacilitatorUnavailable},
		{"empty", answered(200, ``), false, "", fault.FacilitatorUnavailable},
		{"500", answered(500, `{"error":"x"}`), false, "", fault.FacilitatorUnavailable},
		{"429", answered(429, ``), false, "", fault.FacilitatorUnavailable},
		{"401 without credentials", answered(401, ``), false, "", fault.FacilitatorMisconfigured},
		{"401 with credentials", credentialed(answered(401, ``)), false, "", fault.FacilitatorUnauthorized},
		{"404", answered(404, ``), false, "", fault.FacilitatorMisconfigured},
		{"302", answered(302, ``), false, "", fault.FacilitatorMisconfigured},
		{"no URL", reply{err: errNoURL}, false, "", fault.FacilitatorMisconfigured},
		{"credentials unreadable", reply{err: &credentialsError{lost}}, false, "", fault.FacilitatorMisconfigured},
		{"not connected", reply{err: lost}, false, "", fault.FacilitatorUnavailable},
		{"lost", reply{err: lost, sent: true}, false, "", fault.FacilitatorUnavailable},
	} {
		v := judge(row.in, wanted())
		var code fault.Code
		if v.Fault != nil {
			code = v.Fault.Code
		}
		if v.Valid != row.valid || v.Reason != row.reason || code != row.code {
			t.Errorf("%s: got valid %v, reason %q, fault %q; want %v, %q, %q", row.name, v.Valid, v.Reason, code, row.valid, row.reason, row.code)
		}
	}
}

func TestSupports(t *testing.T) {
	t.Parallel()
	const kind = `{"x402Version":2,"scheme":"exact","network":"eip155:8453"}`
	for _, row := range []struct {
		name string
		in   reply
		code fault.Code
	}{
		{"listed", answered(200, `{"kinds":[`+kind+`]}`), ""},
		{"listed among others", answered(200, `{"kinds":[7,{"x402Version":"2"},{"x402Version":1,"scheme":"exact","network":"base"},`+kind+`],"extensions":[]}`), ""},
		{"other version", answered(200, `{"kinds":[{"x402Version":1,"scheme":"exact","network":"eip155:8453"}]}`), fault.FacilitatorMisconfigured},
		{"other network", answered(200, `{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:1"}]}`), fault.FacilitatorMisconfigured},
		{"other scheme", answered(200, `{"kinds":[{"x402Version":2,"scheme":"upto","network":"eip155:8453"}]}`), fault.FacilitatorMisconfigured},
		{"empty list", answered(200, `{"kinds":[]}`), fault.FacilitatorMisconfigured},
		{"no list", answered(200, `{}`), fault.FacilitatorUnavailable},
		{"list of another type", answered(200, `{"kinds":"all"}`), fault.FacilitatorUnavailable},
		{"not JSON", answered(200, `<html>`), fault.FacilitatorUnavailable},
		{"404", answered(404, `{"kinds":[`+kind+`]}`), fault.FacilitatorMisconfigured},
		{"301", answered(301, ``), fault.FacilitatorMisconfigured},
		{"503", answered(503, ``), fault.FacilitatorUnavailable},
		{"401", credentialed(answered(401, ``)), fault.FacilitatorUnauthorized},
		{"not connected", reply{err: errors.New("refused")}, fault.FacilitatorUnavailable},
		{"too long", reply{err: errTooLarge, sent: true}, fault.FacilitatorUnavailable},
	} {
		var code fault.Code
		if f := supports(row.in, network); f != nil {
			code = f.Code
		}
		if code != row.code {
			t.Errorf("%s: got %q, want %q", row.name, code, row.code)
		}
	}
}

func note(doc string) string { return base64.StdEncoding.EncodeToString([]byte(doc)) }

func TestExtensionResponses(t *testing.T) {
	t.Parallel()
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprintf(`"e%02d":{"status":"success"}`, i)
	}
	kept := map[string]string{}
	for i := range maxExtensions {
		kept[fmt.Sprintf("e%02d.status", i)] = "success"
	}
	for _, row := range []struct {
		name   string
		values []string
		want   map[string]string
	}{
		{"success", []string{note(`{"bazaar":{"status":"success"}}`)}, map[string]string{"bazaar.status": "success"}},
		{"all fields", []string{note(`{"bazaar":{"status":"rejected","rejectedReason":"a","reason":"b","code":7,"trace":"secret"},"other":{"code":"c"}}`)},
			map[string]string{"bazaar.status": "rejected", "bazaar.rejectedReason": "a", "bazaar.reason": "b", "bazaar.code": "7", "other.code": "c"}},
		{"no padding", []string{strings.TrimRight(note(`{"bazaar":{"status":"processing"}}`), "=")}, map[string]string{"bazaar.status": "processing"}},
		{"not printable", []string{note(`{"bazaar":{"reason":"a\r\nbü"}}`)}, map[string]string{"bazaar.reason": "a  bü"}},
		{"long value", []string{note(`{"bazaar":{"reason":"` + strings.Repeat("z ", 500) + `"}}`)}, map[string]string{"bazaar.reason": strings.Repeat("z ", maxReason)[:maxReason-3] + "…"}},
		{"a signature", []string{note(`{"bazaar":{"reason":"bad 0x` + strings.Repeat("Ab1", 30) + `"}}`)}, map[string]string{"bazaar.reason": "bad 0xAb1Ab1..."}},
		{"too many", []string{note("{" + strings.Join(many, ",") + "}")}, kept},
		{"values of other types", []string{note(`{"bazaar":{"status":{"a":1},"reason":["x"],"code":true,"rejectedReason":null}}`)}, nil},
		{"name that is a signature", []string{note(`{"` + strings.Repeat("ab", 30) + `":{"status":"success"}}`)}, nil},
		{"name with a line break", []string{note(`{"ba\nzaar":{"status":"success"}}`)}, nil},
		{"long name", []string{note(`{"` + strings.Repeat("a", 100) + `":{"status":"success"}}`)}, nil},
		{"extension is not an object", []string{note(`{"bazaar":"success","x":{"status":"success"}}`)}, map[string]string{"x.status": "success"}},
		{"not base64", []string{"{}"}, nil},
		{"not JSON", []string{note("success")}, nil},
		{"an array", []string{note(`[{"status":"success"}]`)}, nil},
		{"name twice", []string{note(`{"bazaar":{"status":"success"},"bazaar":{"status":"rejected"}}`)}, nil},
		{"two headers", []string{note(`{"a":{"status":"x"}}`), note(`{"b":{"status":"y"}}`)}, nil},
		{"too long", []string{note(`{"bazaar":{"status":"success"},"x":"` + strings.Repeat("a", maxExtensionHeader) + `"}`)}, nil},
		{"none", nil, nil},
	} {
		h := http.Header{}
		for _, v := range row.values {
			h.Add("Extension-Responses", v)
		}
		equal(t, row.name, row.want, extensionResponses(h))
	}
}
