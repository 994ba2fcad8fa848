package main

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// TestVerdict checks the summaries for payments in states that the scripts in testdata do not
// have.
func TestVerdict(t *testing.T) {
	t.Parallel()
	pay := func(s standing, amount string) payment {
		return payment{Standing: s, Amount: amount, Request: "GET /v1/a"}
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
		{account{Payments: []payment{with("404 not_found"), with("200"), with("404 not_found"), pay(answered, "5000")}},
			"W has paid 4 times ($0.02), got 4 answers (1 with 200, 2 with 404 not_found), and is owed nothing."},
		{account{Payments: []payment{lost}}, "W has paid 1 time ($0.005) and is owed 1: a transfer without a known request; a refund of $0.005 is due."},
		{account{Payments: []payment{pay(refunded, "9007199254740993000001")}}, "W has paid 1 time ($9007199254740993.000001), was refunded 1 time ($9007199254740993.000001), and is owed nothing."},
		{account{Payments: []payment{pay(refused, "5000"), pay(refused, "5000"), pay(notCharged, "5000"), pay(superseded, "5000")}},
			"W has no payment that is known to have been made; 2 payments ($0.01) were refused by the facilitator, with no proof that nothing was paid; 1 payment was not charged; " +
				"1 payment was not charged, because another payment answers the same purchase."},
		{account{Payments: []payment{doubt("paid"), doubt("never_paid"), doubt("still_open"), doubt("cannot_tell"), pay(inDoubt, "1"), pay(underWay, "1")}},
			"W has no payment that is known to have been made; 1 payment in doubt ($0.005) was made, as the chain shows; " +
				"1 payment in doubt ($0.005) was not made, as the chain shows, and cannot be made any more; " +
				"1 payment in doubt ($0.005) was not made so far and can still be made; " +
				"it is not known whether 2 payments in doubt ($0.005001) were made; 1 payment is under way."},
		{account{Payments: []payment{pay(answered, "-5"), pay(answered, "1")}}, "W has paid 2 times ($0.000001 and 1 amount that cannot be read), got 2 answers, and is owed nothing."},
		{account{Payments: []payment{pay(unknown, "1")}, Missed: 2},
			"W has no payment that is known to have been made; 1 payment is in a state that this version does not know; 2 records could not be read, so there may be more."},
		{account{Missed: 1}, "W has no payment that is known to have been made; 1 record could not be read, so there may be more."},
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
