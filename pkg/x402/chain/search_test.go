package chain

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Providers cap the range of a search, each in its own way.
func TestCappedRanges(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q := p.claimed()
	p.mine(60) // settled two minutes after the claim
	tx := p.pay(q)
	p.mine(300)
	for name, refuse := range map[string]rule{
		"-32614 with 413":     refusal(http.StatusRequestEntityTooLarge, `{"code":-32614,"message":"limited to a 10,000 range"}`),
		"-32600 with 400":     refusal(http.StatusBadRequest, `{"code":-32600,"message":"requests with up to a 500 block range."}`),
		"-32602":              tooWide(),
		"413 without a reply": bare(http.StatusRequestEntityTooLarge, "<html>too large</html>"),
		"413 with another":    bare(http.StatusRequestEntityTooLarge, `{"message":"too large"}`),
	} {
		for _, most := range []uint64{500, 99, 10} {
			t.Run(fmt.Sprintf("%d blocks, %s", most, name), func(t *testing.T) {
				p.proxy.reset(capped(t, most, refuse))
				if f := p.find(t, q); f.Verdict != x402.Paid || f.Transaction != tx {
					t.Errorf("finding = %+v", f)
				}
			})
		}
	}
	for _, c := range []struct {
		name          string
		most          uint64 // blocks of a range
		refuse        rule
		why           string
		calls, search int // of each at most
	}{
		{"too narrow to finish", 1, tooWide(), errOutOfCalls.Error(), maxCalls, maxCalls},
		{"no search at all", 0, tooWide(), "query exceeds max block range", maxCalls, 15},
		// A node that has had enough of us is not asked again at once.
		{"HTTP 429", 0, slowDown(), methodLogs, 4, 1},
		{"HTTP 429 with an error", 0, refusal(http.StatusTooManyRequests, `{"code":-32005,"message":"rate limit"}`), methodLogs, 4, 1},
		{"code 429", 0, refusal(http.StatusOK, `{"code":429,"message":"compute units exceeded"}`), methodLogs, 4, 1},
		{"HTTP 403", 0, refusal(http.StatusForbidden, `{"code":-32000,"message":"key disabled"}`), methodLogs, 4, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.proxy.reset(capped(t, c.most, c.refuse))
			p.expectNothing(t, q, c.why)
			if calls, search := len(p.proxy.methods()), p.proxy.count(methodLogs); calls > c.calls || search > c.search {
				t.Errorf("%d calls and %d searches, want %d and %d at most", calls, search, c.calls, c.search)
			}
		})
	}
	// The bound on calls holds whatever the node answers.
	for calls := 1; calls < len(callsSearch); calls++ {
		p.client.maxCalls = calls
		p.proxy.reset(nil)
		p.expectNothing(t, q, errOutOfCalls.Error())
		equal(t, "calls", calls, len(p.proxy.methods()))
	}
}
