package simnet

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// tries is how often a request is paid for, each time by another payer, while
// the service says that it ran out of time where no peer made it.
const tries = 5

// buyUntil pays for a request until its answer is as wanted, or is not one for
// which a busy machine may be the reason. What is wrong for any other reason is
// wrong at once, and what always runs out of time does so the last time too.
func buyUntil(t *testing.T, s seller, path string, wanted func(x402test.Reply) bool) (x402test.Reply, error) {
	t.Helper()
	for try := 1; ; try++ {
		reply, err := s.buy(t.Context(), path)
		if try == tries || err == nil && (!ranOut(reply) || wanted(reply)) || err != nil && !neverSent(err) {
			return reply, err
		}
		t.Logf("again, since the service ran out of time: %v %d %.300s", err, reply.Status, reply.Body)
	}
}

// ranOut says that a call of the service took longer than it may: a lookup of
// the request or of a part of it, or one of the ledger, which then does not know
// whether the payer is charged.
func ranOut(reply x402test.Reply) bool {
	var body any
	if json.Unmarshal(reply.Body, &body) != nil {
		return false
	}
	if reply.Status != http.StatusOK {
		if charged, err := at(body, "error.charged"); err == nil && charged == nil {
			return true
		}
	}
	return slices.ContainsFunc(codesIn(body), func(code string) bool {
		return strings.HasSuffix(code, "_timeout") || fault.Code(code) == fault.LedgerUnavailable
	})
}

// neverSent says that a request was not written within the time that the service
// gives a new connection. Package net/http does not export this error.
func neverSent(err error) bool { return strings.Contains(err.Error(), "server closed idle connection") }

// codesIn are the codes of all errors in an answer.
func codesIn(v any) []string {
	var codes []string
	switch v := v.(type) {
	case map[string]any:
		if code, ok := v["code"].(string); ok {
			codes = append(codes, code)
		}
		for _, x := range v {
			codes = append(codes, codesIn(x)...)
		}
	case []any:
		for _, x := range v {
			codes = append(codes, codesIn(x)...)
		}
	}
	return codes
}

// timesOut says that a host makes some operation run out of time, by the table.
func timesOut(domain string) bool {
	return slices.ContainsFunc(tableRows(), func(r row) bool {
		return r.domain == domain && strings.HasSuffix(string(r.code()), "_timeout")
	})
}
