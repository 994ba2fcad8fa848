package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The whole account, in any letter case of the wallet, with what the chain says
// about what is in doubt.
func TestPayer(t *testing.T) {
	t.Parallel()
	path, paid := stored(t, fill, complete)
	env := map[string]string{"LEDGER_FILE": path, "RPC_URL": startNode(t, node{}).URL + "/s3cr3t"}
	at := func(d time.Duration) string { return paid.Add(d).Format("2006-01-02 15:04Z") }
	want := []string{
		"payer " + payer, "ledger " + path, "token 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 on eip155:8453",
		"SINCE UPDATED STATE AMOUNT REQUEST TRANSACTION NOTE",
		at(0) + " " + at(0) + " in doubt $0.005 " + lookup + " - timeout; the chain: never paid, authorization expired unused",
		at(0) + " " + at(0) + " answer owed $0.005 " + lookup + " 0x02 until " + at(24*time.Hour) + ", last error dns_timeout",
		at(0) + " " + at(time.Hour) + " refund due $0.005 " + lookup + " " + paidIn + " last error upstream?[31m",
		at(0) + " " + at(0) + " answered $0.005 " + lookup + " 0x04 200",
		at(time.Minute) + " " + at(time.Minute) + " refused $0.005 " + lookup + " - insufficient_funds, not proven",
		at(2*time.Minute) + " " + at(2*time.Minute) + " refunded $0.005 - 0x06 by " + back,
		"make refund KEY='" + keyOf(3) + "'",
		payer + " has paid 4 times ($0.02), got 1 answer (1 with 200), was refunded 1 time ($0.005), and is owed 2: " + lookup + " and 1 more; " +
			"the same signature, sent again, gets the answer until " + at(24*time.Hour) + "; a refund of $0.005 is due; " +
			"1 payment in doubt ($0.005) was not made, as the chain shows, and cannot be made any more; 1 payment ($0.005) was refused by the facilitator, not proven.",
	}
	spaces := regexp.MustCompile(` +`)
	for _, wallet := range []string{payer, strings.ToLower(payer), strings.ToUpper(payer), " " + payer + " "} {
		out, notes := operate(t, 0, env, "payer", wallet)
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
	path, _ := stored(t, fill, complete)
	out, notes := operate(t, 0, map[string]string{"LEDGER_FILE": path}, "payer", "-json", payer)
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

// A wallet without payments, and a node that is down: it says nothing, and hides
// nothing.
func TestPayerUnknown(t *testing.T) {
	t.Parallel()
	path, _ := stored(t, fill, complete)
	env := map[string]string{"LEDGER_FILE": path}
	out, _ := operate(t, 0, env, "payer", asset)
	prints(t, out, "\n0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 is not in this ledger: no payment from it on eip155:8453 is known here (what is answered is kept for 35 days).\n")
	env["RPC_URL"] = startNode(t, node{down: true}).URL
	out, _ = operate(t, 0, env, "payer", payer)
	prints(t, out, "the chain: cannot tell, ", "it is not known whether 1 payment")
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
	with := func(answer string) payment {
		p := pay(answered, "5000")
		p.Answer = answer
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
		{account{Payments: []payment{with("404 not_found"), with("200"), with("404 not_found"), pay(answered, "5000")}},
			"W has paid 4 times ($0.02), got 4 answers (1 with 200, 2 with 404 not_found), and is owed nothing."},
		{account{Payments: []payment{pay(answered, "5000"), pay(answered, "5000"), pay(refundDue, "5000")}},
			"W has paid 3 times ($0.015), got 2 answers, and is owed 1: GET /v1/a; a refund of $0.005 is due."},
		{account{Payments: []payment{pay(answerOwed, "5000"), pay(answerOwed, "10000")}},
			"W has paid 2 times ($0.015) and is owed 2: GET /v1/a and 1 more; the same signatures, sent again, get 2 answers, the last until 2026-11-20 12:00Z."},
		{account{Payments: []payment{lost}}, "W has paid 1 time ($0.005) and is owed 1: a transfer without a request that is known; a refund of $0.005 is due."},
		{account{Payments: []payment{pay(refunded, "9007199254740993000001")}}, "W has paid 1 time ($9007199254740993.000001), was refunded 1 time ($9007199254740993.000001), and is owed nothing."},
		{account{Payments: []payment{pay(refused, "5000"), pay(refused, "5000"), pay(notCharged, "5000"), pay(superseded, "5000")}},
			"W has no payment that is known to have been made; 2 payments ($0.01) were refused by the facilitator, not proven; 1 payment was not charged; " +
				"1 payment was not charged, because another payment answers the same purchase."},
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

func TestAnswerOf(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`{"error":{"code":"nxdomain"}}`))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for want, a := range map[string]ledger.Answer{
		"200": {Stored: true, Status: 200, Body: []byte(`{"error":{"code":"nxdomain"}}`)}, "404 not_found": {Stored: true, Status: 404, Body: []byte(`{"error":{"code":"not_found"}}`)},
		"404 nxdomain": {Stored: true, Status: 404, Encoding: "gzip", Body: zipped.Bytes()}, "410": {Status: 410, Encoding: "gzip", Body: []byte("x")},
		"418": {Stored: true, Status: 418, Body: []byte("a teapot")}, "403": {Status: 403},
	} {
		if got := answerOf(a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
