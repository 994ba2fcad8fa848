package facilitator

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		if diff := cmp.Diff(row.want, extensionResponses(h)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}
