package main

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

const principal = "arn:aws:sts::111122223333:assumed-role/shop-RefundRole-1ABCDEFGHIJKL/ann"

// identity is what STS answers when it is asked who the caller is.
const identity = `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Arn>` + principal + `</Arn><UserId>AROA:ann</UserId><Account>111122223333</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`

// openWithSTS returns a ledger in memory with one debt. The commands treat the ledger as a
// table in AWS. The given handler plays AWS, and answers the requests that ask who the
// principal is.
func openWithSTS(t *testing.T, sts http.HandlerFunc) (ledgerSession, *ledgertest.Memory) {
	t.Helper()
	env := tableVariables(map[string]string{endpointSTS: testbed.Serve(t, sts)})
	who, err := order{getenv: func(v string) string { return env[v] }, now: time.Now}.principalOf(boot.Table{Name: "ledger"})
	if err != nil {
		t.Fatal(err)
	}
	memory := new(ledgertest.Memory)
	b := newBuyer(t, memory, time.Now().Add(-48*time.Hour))
	b.must(b.claim(keyOf(3)).Settled(t.Context(), receiptOf(paidIn), false))
	o := openInMemory(t, memory, memory, startNode(t, "5000"))
	o.principal = who
	return o, memory
}

// TestPrincipal checks the records of a table in AWS: a record names the principal that begins
// a refund, and the principal that closes it.
func TestPrincipal(t *testing.T) {
	t.Parallel()
	o, memory := openWithSTS(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, identity) })
	key, _ := parseKey(keyOf(3))
	for _, transaction := range []string{"", refundTx} {
		if err := o.repay(t.Context(), debt{debtKey: key, transaction: transaction}); err != nil {
			t.Error(err)
		}
	}
	r := ledgertest.Payment(t, memory, keyOf(3))
	if r.State != ledger.Refunded || r.SendingBack == nil || r.SendingBack.By != principal || r.ClosedBy != principal {
		t.Errorf("begun by %+v, closed by %q, %s", r.SendingBack, r.ClosedBy, r.State)
	}
}

// TestNoPrincipal checks that nothing is written if AWS does not name the principal.
func TestNoPrincipal(t *testing.T) {
	t.Parallel()
	for name, sts := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"nobody":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<GetCallerIdentityResponse/>") },
		"nothing": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
	} {
		o, memory := openWithSTS(t, sts)
		key, _ := parseKey(keyOf(3))
		for _, d := range []debt{{debtKey: key}, {debtKey: key, transaction: refundTx}, {debtKey: key, transaction: paidIn, asAnswered: true}} {
			if err := o.repay(t.Context(), d); err == nil || !strings.Contains(err.Error(), "AWS does not say who you are") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if r := ledgertest.Payment(t, memory, keyOf(3)); r.State != ledger.Settled || r.SendingBack != nil || r.ClosedBy != "" {
			t.Errorf("%s: it was written: %+v", name, r)
		}
	}
}

// TestWhoseTable checks that the commands would ask AWS for the principal if the table is in
// AWS, but not if the table is on this machine.
func TestWhoseTable(t *testing.T) {
	t.Parallel()
	for endpoint, asks := range map[string]bool{"http://127.0.0.1:1": false, "": true} {
		env := tableVariables(map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": endpoint})
		getenv := func(v string) string { return env[v] }
		c, err := boot.ParseLocal(getenv)
		if err != nil {
			t.Fatal(err)
		}
		if who, err := (order{getenv: getenv}).principalOf(c.Ledger); err != nil || (who != nil) != asks {
			t.Errorf("%q: asked %v, %v", endpoint, who != nil, err)
		}
	}
}

func tableVariables(more map[string]string) map[string]string {
	env := map[string]string{"LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
	maps.Copy(env, more)
	return env
}
