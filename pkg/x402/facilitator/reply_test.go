package facilitator

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

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
		f := supports(answered(200, `{"extensions":[],"kinds":`+kinds+`}`), network)
		if (f == nil) != (want == "") || f != nil && fault.From(f).Code != want {
			t.Errorf("%s: %v, want %q", kinds, f, want)
		}
	}
	if f := supports(answered(404, `{"kinds":[`+kind+`]}`), network); f == nil || fault.From(f).Code != fault.FacilitatorMisconfigured {
		t.Errorf("listed in a 404: %v", f)
	}
}

func encoded(note string) string { return base64.StdEncoding.EncodeToString([]byte(note)) }

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
		for _, value := range []string{encoded(note), strings.TrimRight(encoded(note), "=")} {
			if got := extensionResponses(http.Header{"Extension-Responses": {value}}); !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", note, got, want)
			}
		}
	}
	one := encoded(`{"a":{"status":"x"}}`)
	for _, values := range [][]string{nil, {"{}"}, {one, one}} {
		if got := extensionResponses(http.Header{"Extension-Responses": values}); len(got) > 0 {
			t.Errorf("%q: %v", values, got)
		}
	}
}
