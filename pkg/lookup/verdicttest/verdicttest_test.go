package verdicttest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

func TestOf(t *testing.T) {
	rules := []lookup.Verdict{
		{If: "error.code != null", Says: "Failed: {error.message}", Tone: lookup.Bad},
		{If: "expired = true and status < 500", Says: "Expired {end date}, {end distance}", Tone: lookup.Bad},
		{If: "status >= 500", Says: "Status {status}"},
		{If: "type = MX", Says: "{type}: {records count mail server}: {names list}, first {records.0.exchange}, {records.7.exchange}", Tone: lookup.Good},
		{If: "records.length = 0", Says: "None"},
	}
	for answer, want := range map[string]string{
		`{"error":{"code":"x","message":"m"}}`:                               "bad Failed: m",
		`{"expired":true,"status":200,"end":"2020-12-31T23:59:59Z"}`:         "bad Expired 31 December 2020, 5 years ago",
		`{"expired":true,"status":200,"end":"2026-12-02T00:00:00Z"}`:         "bad Expired 2 December 2026, in 1 day",
		`{"expired":true,"status":500,"end":"2026-12-02T00:00:00Z"}`:         " Status 500",
		`{"type":"MX","records":[{"exchange":"a"},{}],"names":["a","b"]}`:    "good MX: 2 mail servers: a, b, first a, null",
		`{"type":"A","records":[]}`:                                          " None",
		`{"type":"A","records":[{"address":"192.0.2.1"}]}`:                   " ",
		`{"expired":true,"status":0,"end":"2026-11-30T20:00:00Z","error":1}`: "bad Expired 30 November 2026, today",
	} {
		t.Run(answer, func(t *testing.T) {
			line, tone := Of(rules, json.RawMessage(answer), time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
			if got := string(tone) + " " + line; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
