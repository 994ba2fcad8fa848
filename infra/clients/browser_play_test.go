package clients

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// playMoney makes visits to a service that accepts play money, as "make run" starts it. The
// browser reaches the service without a gateway, and the facilitator runs in the service's
// process.
func playMoney(t *testing.T) {
	browsers <- struct{}{}
	defer func() { <-browsers }()
	d := newDriver(t)
	defer d.end(t)
	cmd := testbed.Local(testbed.Program(t, testbed.LocalRunner), t.TempDir(), map[string]string{"DNS_RESOLVERS": resolverOf(t, browserZone, nil)})
	p := testbed.Must(programs.Start(cmd))
	t.Cleanup(func() { p.End(t) })
	testbed.Check(p.Ready())
	moved := 0
	for _, v := range []visit{
		{name: "paid by one press", script: "playMoney", path: wwwPath, transfers: 1, answer: `"192.0.2.10"`},
		{name: "documentation", script: "playMoneyDocs", path: "/docs"},
		{name: "the play wallet is gone", script: "playMoneyGone", path: wwwPath, transfers: 1},
		{name: "beside a wallet", script: "playMoneyOrWallet", path: wwwPath, transfers: 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, shown := d.run(t, p.URL, v)
			if !strings.Contains(shown, v.answer) {
				t.Errorf("the answer is %s, without %s", shown, v.answer)
			}
			moved += v.transfers
			if n := playTransfers(t, p); n != moved {
				t.Errorf("%d transfers so far, want %d", n, moved)
			}
		})
	}
}

// playTransfers returns the number of transfers that the play-money facilitator of a local
// runner has made.
func playTransfers(t *testing.T, p *programs.Process) int {
	facilitator := regexp.MustCompile(`facilitator +(http\S+)`).FindStringSubmatch(p.Log.String())
	client := &x402test.Client{HTTP: http.DefaultClient}
	var list []x402test.Transfer
	testbed.Check(json.Unmarshal(testbed.Must(client.Get(t.Context(), facilitator[1]+"/transfers", "")).Body, &list))
	return len(list)
}
