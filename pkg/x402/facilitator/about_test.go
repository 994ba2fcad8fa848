package facilitator

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// What a second facilitator may be asked after, and what counts against this one:
// a reason about the payer is told apart at any status and in either form, and an
// unknown outcome with a verdict from one without.
func TestAboutPayerAndNoVerdict(t *testing.T) {
	t.Parallel()
	const hash = `"0x7c07e16e912e49c7e7613b44cc8a198ca856112064bfa97a8b0d1427c188ab99"`
	for name, c := range map[string]struct {
		status           int
		body             string
		class            x402.Class
		about, noVerdict bool
	}{
		"refused":                   {400, `{"success":false,"errorReason":"insufficient_funds"}`, x402.Refused, false, false},
		"refused at the door":       {403, `{"success":false,"errorReason":"kyt_risk_detected"}`, x402.TurnedAway, true, false},
		"by the platform":           {403, `{"errorType":"kyt_risk_detected"}`, x402.TurnedAway, true, false},
		"by the platform, 500":      {500, `{"errorType":"kyt_risk_detected"}`, x402.Unknown, true, true},
		"with a transaction":        {200, `{"success":false,"errorReason":"insufficient_funds","transaction":` + hash + `}`, x402.Unknown, true, false},
		"credentials":               {401, `{"errorType":"unauthorized"}`, x402.TurnedAway, false, false},
		"schema":                    {400, `{"errorType":"invalid_request"}`, x402.TurnedAway, false, false},
		"moved":                     {404, `not found`, x402.TurnedAway, false, false},
		"a word of a facilitator's": {500, `{"success":false,"errorReason":"Oops!"}`, x402.Unknown, false, false},
		"a gateway":                 {502, `<html>`, x402.Unknown, false, true},
		"nonsense":                  {200, `{"success":"yes"}`, x402.Unknown, false, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		client, err := New(Config{URL: server.URL + "/base/", Credentials: mustBearer(t, "token"), ResendWait: -1})
		if err != nil {
			t.Fatal(err)
		}
		s := client.Settle(t.Context(), x402.Payload{}, x402.Requirements{})
		if s.Class != c.class || s.AboutPayer != c.about || s.NoVerdict != c.noVerdict {
			t.Errorf("%s: %s, about the payer %t, no verdict %t (%s)", name, s.Class, s.AboutPayer, s.NoVerdict, s.Reason)
		}
		if name == "by the platform" {
			if v := client.Verify(t.Context(), x402.Payload{}, x402.Requirements{}); v.Fault == nil || !v.AboutPayer {
				t.Errorf("verify: %+v", v)
			}
		}
		if want := server.Listener.Addr().String() + "/base"; client.Name() != want {
			t.Errorf("it is called %q, want %q", client.Name(), want)
		}
		server.Close()
		if s := client.Settle(t.Context(), x402.Payload{}, x402.Requirements{}); s.Class != x402.NotSent || s.NoVerdict {
			t.Errorf("down: %+v", s)
		}
	}
}
