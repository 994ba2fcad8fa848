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
		name string
		in   reply
		want string
	}{
		{"yes", answered(200, yes), "valid"},
		{"yes without payer", answered(200, `{"isValid":true}`), "valid"},
		{"yes, payer in another case", answered(200, strings.ToLower(strings.ReplaceAll(yes, "isValid", "@"))), "facilitator_unavailable"},
		{"yes, lower-case payer", answered(200, `{"isValid":true,"payer":"`+strings.ToLower(payer)+`"}`), "valid"},
		{"yes for another payer", answered(200, `{"isValid":true,"payer":"`+other+`"}`), "facilitator_unavailable"},
		{"yes and a reason", answered(200, `{"isValid":true,"invalidReason":"insufficient_funds"}`), "facilitator_unavailable"},
		{"no for another payer", answered(200, `{"isValid":false,"invalidReason":"insufficient_funds","payer":"`+other+`"}`), "facilitator_unavailable"},
		{"yes in a 400", answered(400, yes), "facilitator_unavailable"},
		{"no in a 200", answered(200, no), "invalid signature"},
		{"no without reason", answered(200, `{"isValid":false}`), "facilitator_unavailable"},
		{"isValid is a string", answered(200, `{"isValid":"true"}`), "facilitator_unavailable"},
		{"isValid missing", answered(200, `{"payer":"`+payer+`"}`), "facilitator_unavailable"},
		{"isValid twice", answered(200, `{"isValid":false,"isValid":true}`), "facilitator_unavailable"},
		{"reason of another type", answered(200, `{"isValid":false,"invalidReason":1}`), "facilitator_unavailable"},
		{"payer of another type", answered(200, `{"isValid":true,"payer":1}`), "facilitator_unavailable"},
		{"empty", answered(200, ``), "facilitator_unavailable"},
		{"500", answered(500, `{"error":"x"}`), "facilitator_unavailable"},
		{"401 without credentials", answered(401, ``), "facilitator_misconfigured"},
		{"401 with credentials", credentialed(answered(401, ``)), "facilitator_unauthorized"},
		{"404", answered(404, ``), "facilitator_misconfigured"},
		{"302", answered(302, ``), "facilitator_misconfigured"},
		{"no URL", reply{err: errNoURL}, "facilitator_misconfigured"},
		{"credentials unreadable", reply{err: &credentialsError{lost}}, "facilitator_misconfigured"},
		{"not connected", reply{err: lost}, "facilitator_unavailable"},
		{"lost", reply{err: lost, sent: true}, "facilitator_unavailable"},
	} {
		if got, v := verifies(row.in); got != row.want {
			t.Errorf("%s: %s, %+v, want %s", row.name, got, v, row.want)
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
