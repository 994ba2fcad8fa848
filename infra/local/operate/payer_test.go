package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

const (
	back  = "0x00000000000000000000000000000000000000000000000000000000000000bb" // a refund
	block = "0x000000000000000000000000000000000000000000000000000000000000b10c"
	// sender is where refunds come from.
	sender = "0x90f79bf6eb2c4f870365e785982e1f101e93b906"
)

// node is a chain on which nothing was ever paid, but for what refunds hold:
// atomic units to the payer, by the transaction back.
type node struct {
	*httptest.Server
	from    string
	sent    []int
	failed  bool
	unknown bool
	down    bool
}

func startNode(t *testing.T, n node) *node {
	t.Helper()
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c struct {
			ID     int
			Method string
		}
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			t.Error(err)
		}
		result := map[string]string{
			"eth_chainId": `"0x2105"`, "eth_call": fmt.Sprintf(`"0x%064x"`, 0), "eth_getTransactionReceipt": n.receipt(),
			"eth_getBlockByNumber": fmt.Sprintf(`{"number":"0x10","hash":%q,"timestamp":"0x%x"}`, block, time.Now().Unix()),
		}[c.Method]
		if n.down {
			result = "!"
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":%s}`, c.ID, result)
	}))
	t.Cleanup(n.Close)
	return &n
}

func (n node) receipt() string {
	if n.unknown {
		return "null"
	}
	if n.failed {
		return fmt.Sprintf(`{"transactionHash":%q,"blockHash":%q,"blockNumber":"0x10","status":"0x0","logs":[]}`, back, block)
	}
	logs := make([]string, len(n.sent))
	for i, value := range n.sent {
		logs[i] = fmt.Sprintf(`{"address":%q,"topics":["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",%q,%q],"data":"0x%064x",
			"logIndex":"0x%x","blockNumber":"0x10","blockHash":%q,"transactionHash":%q,"removed":false}`,
			asset, padded(n.from), padded(payer), value, i, block, back)
	}
	return fmt.Sprintf(`{"transactionHash":%q,"blockHash":%q,"blockNumber":"0x10","status":"0x1","logs":[%s]}`, back, block, strings.Join(logs, ","))
}

func padded(address string) string {
	return "0x" + strings.Repeat("0", 24) + strings.ToLower(strings.TrimPrefix(address, "0x"))
}

// whole is a ledger with payments of one payer in every state, and one of somebody
// else.
func whole(t *testing.T) (path string, paid time.Time) {
	t.Helper()
	return stored(t, fill, complete)
}

// complete adds to fill's payments one refused, one of which no request is known
// and which was paid back, and one of another payer.
func complete(t *testing.T, store ledger.Store, paid time.Time) {
	t.Helper()
	b := newBuyer(t, store, paid.Add(time.Minute))
	b.must(b.claim(keyOf(5)).Refused(t.Context(), "insufficient_funds"))
	b.must(b.claim(ledger.Key("eip155:8453", asset, sender, "0x05")).Settled(t.Context(), ledger.Receipt{Transaction: "0x55"}, false))
	b.now = b.now.Add(time.Minute)
	_, err := b.Testify(t.Context(), ledger.Witness{
		Key: keyOf(6), Terms: b.terms, At: b.now, Receipt: ledger.Receipt{Transaction: "0x06", Payer: payer, Network: "eip155:8453"},
	})
	b.must(err)
	_, err = b.Refund(t.Context(), keyOf(6), back)
	b.must(err)
}

// The whole account, in any letter case of the wallet, with what the chain says
// about what is in doubt.
func TestPayer(t *testing.T) {
	t.Parallel()
	path, paid := whole(t)
	env := map[string]string{"LEDGER_FILE": path, "RPC_URL": startNode(t, node{}).URL + "/s3cr3t"}
	at := func(d time.Duration) string { return paid.Add(d).Format("2006-01-02 15:04Z") }
	want := []string{
		"payer " + payer, "ledger " + path, "token 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 on eip155:8453",
		"SINCE UPDATED STATE AMOUNT REQUEST TRANSACTION NOTE",
		at(0) + " " + at(0) + " in doubt $0.005 " + lookup + " - timeout; the chain: never paid, authorization expired unused",
		at(0) + " " + at(0) + " answer owed $0.005 " + lookup + " 0x02 until " + at(24*time.Hour) + ", last error dns_timeout",
		at(0) + " " + at(time.Hour) + " refund due $0.005 " + lookup + " 0x03 last error upstream?[31m",
		at(0) + " " + at(0) + " answered $0.005 " + lookup + " 0x04 -",
		at(time.Minute) + " " + at(time.Minute) + " refused $0.005 " + lookup + " - insufficient_funds",
		at(2*time.Minute) + " " + at(2*time.Minute) + " refunded $0.005 - 0x06 by " + back,
		"make refund KEY='" + keyOf(3) + "'",
		payer + " has paid 4 times ($0.02), got 1 answer, was refunded 1 time ($0.005), and is owed 2: " + lookup + " and 1 more; " +
			"the same signature, sent again, gets the answer until " + at(24*time.Hour) + "; a refund of $0.005 is due; " +
			"1 payment in doubt ($0.005) was not made, as the chain shows, and cannot be made any more; 1 payment was refused and charged nothing.",
	}
	spaces := regexp.MustCompile(` +`)
	for _, wallet := range []string{payer, strings.ToLower(payer), strings.ToUpper(payer), " " + payer + " "} {
		out, notes := command(t, 0, env, "-payer", wallet)
		tidy := spaces.ReplaceAllString(out, " ")
		for _, line := range want {
			if !strings.Contains(tidy, "\n"+line+"\n") && !strings.HasPrefix(tidy, line+"\n") {
				t.Errorf("%s: no line %q in\n%s", wallet, line, tidy)
			}
		}
		if notes != "" || strings.Contains(out, "0x55") || strings.Contains(out, "s3cr3t") {
			t.Errorf("%s: noted %q, printed\n%s", wallet, notes, out)
		}
	}
}

// For a program; without a node nothing is known of what is in doubt.
func TestPayerJSON(t *testing.T) {
	t.Parallel()
	path, _ := whole(t)
	out, notes := command(t, 0, map[string]string{"LEDGER_FILE": path}, "-payer", payer, "-json")
	var got account
	if err := json.Unmarshal([]byte(out), &got); err != nil || notes != "" {
		t.Fatalf("%v\n%s%s", err, out, notes)
	}
	standings := ""
	for _, p := range got.Payments {
		standings += string(p.Standing) + " "
		if p.Chain != nil || p.Amount != "5000" {
			t.Errorf("%+v", p)
		}
	}
	if got.Wallet != payer || standings != "in_doubt answer_owed refund_due answered refused refunded " || got.Cut || got.Missed != 0 ||
		!strings.Contains(got.Verdict, "it is not known whether 1 payment in doubt ($0.005) was made") {
		t.Errorf("%s: %+v", standings, got)
	}
}

func TestPayerUnknown(t *testing.T) {
	t.Parallel()
	path, _ := whole(t)
	out, _ := command(t, 0, map[string]string{"LEDGER_FILE": path}, "-payer", asset)
	if !strings.HasSuffix(out, "\n0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 is not in this ledger: no payment from it on eip155:8453 is known here (what is answered is kept for 35 days).\n") {
		t.Errorf("printed:\n%s", out)
	}
	// A node that is down says nothing, and hides nothing.
	out, _ = command(t, 0, map[string]string{"LEDGER_FILE": path, "RPC_URL": startNode(t, node{down: true}).URL}, "-payer", payer)
	if !strings.Contains(out, "the chain: cannot tell, ") || !strings.Contains(out, "it is not known whether 1 payment") {
		t.Errorf("printed:\n%s", out)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	ask := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	pay := func(s standing, amount string) payment {
		p := payment{Standing: s, Amount: amount, Request: "GET /v1/a"}
		if s == answerOwed {
			p.AskUntil = ask
		}
		return p
	}
	doubt := func(verdict string) payment {
		p := pay(inDoubt, "5000")
		p.Chain = &evidence{Verdict: verdict}
		return p
	}
	lost := pay(refundDue, "5000")
	lost.Request = ""
	for _, c := range []struct {
		account account
		want    string
	}{
		{account{Payments: []payment{pay(answered, "5000")}}, "W has paid 1 time ($0.005), got 1 answer, and is owed nothing."},
		{account{Payments: []payment{pay(answered, "5000"), pay(answered, "5000"), pay(refundDue, "5000")}},
			"W has paid 3 times ($0.015), got 2 answers, and is owed 1: GET /v1/a; a refund of $0.005 is due."},
		{account{Payments: []payment{pay(answerOwed, "5000"), pay(answerOwed, "10000")}},
			"W has paid 2 times ($0.015) and is owed 2: GET /v1/a and 1 more; the same signatures, sent again, get 2 answers, the last until 2026-11-20 12:00Z."},
		{account{Payments: []payment{lost}}, "W has paid 1 time ($0.005) and is owed 1: a transfer without a request that is known; a refund of $0.005 is due."},
		{account{Payments: []payment{pay(refunded, "9007199254740993000001")}}, "W has paid 1 time ($9007199254740993.000001), was refunded 1 time ($9007199254740993.000001), and is owed nothing."},
		{account{Payments: []payment{pay(refused, "5000"), pay(refused, "5000")}},
			"W has no payment that is known to have been made; 2 payments were refused and charged nothing."},
		{account{Payments: []payment{doubt("paid"), doubt("never_paid"), doubt("still_open"), doubt("cannot_tell"), pay(inDoubt, "1"), pay(underWay, "1")}},
			"W has no payment that is known to have been made; 1 payment in doubt ($0.005) was made, as the chain shows; " +
				"1 payment in doubt ($0.005) was not made, as the chain shows, and cannot be made any more; " +
				"1 payment in doubt ($0.005) was not made so far and can still be made; " +
				"it is not known whether 2 payments in doubt ($0.005001) were made; 1 payment is under way just now."},
		{account{Payments: []payment{pay(answered, "-5"), pay(answered, "1")}}, "W has paid 2 times ($0.000001 and 1 amount that cannot be read), got 2 answers, and is owed nothing."},
		{account{Payments: []payment{pay(unknown, "1")}, Missed: 2},
			"W has no payment that is known to have been made; 1 payment is in a state that this version does not know; 2 records could not be read, so this may not be all."},
		{account{Missed: 1}, "W has no payment that is known to have been made; 1 record could not be read, so this may not be all."},
		{account{Payments: []payment{pay(answered, "5000")}, Cut: true},
			"W has paid 1 time ($0.005), got 1 answer, and is owed nothing; this is about 1 record only, and there are more."},
	} {
		c.account.Wallet = "W"
		if got := c.account.verdict(); got != c.want {
			t.Errorf("verdict\n%s\nwant\n%s", got, c.want)
		}
	}
}
