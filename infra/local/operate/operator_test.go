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

// identity is what AWS says of who somebody is.
const identity = `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Arn>` + principal + `</Arn><UserId>AROA:ann</UserId><Account>111122223333</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`

// TestPrincipal: beside a table of AWS a record names the principal whose credentials write
// to it, who begins a refund and who closes it. Where AWS does not say that, nothing is
// written; and no local user stands for somebody of AWS.
func TestPrincipal(t *testing.T) {
	t.Parallel()
	answers := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, identity) }
	for name, says := range map[string]http.HandlerFunc{
		"known":   answers,
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"nothing": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := tableVariables(map[string]string{endpointSTS: testbed.Serve(t, says)})
			who, err := principalOf(func(v string) string { return env[v] }, boot.Table{Name: "ledger"})
			if err != nil || who == nil {
				t.Fatalf("%v, %v", who == nil, err)
			}
			memory := new(ledgertest.Memory)
			b := newBuyer(t, memory, time.Now().Add(-48*time.Hour))
			b.must(b.claim(keyOf(3)).Settled(t.Context(), receiptOf(paidIn), false))
			o := inMemory(t, memory, memory, startNode(t, "5000"))
			o.principal = who
			key, _ := readKey(keyOf(3))
			begun := o.repay(t.Context(), due{debtKey: key})
			closed := o.repay(t.Context(), due{debtKey: key, transaction: back})
			r := ledgertest.Payment(t, memory, keyOf(3))
			if name != "known" {
				for _, err := range []error{begun, closed} {
					if err == nil || !strings.Contains(err.Error(), "AWS does not say who you are") {
						t.Errorf("%v", err)
					}
				}
				if r.State != ledger.Settled || r.SendingBack != nil || r.ClosedBy != "" {
					t.Errorf("it was written: %+v", r)
				}
				return
			}
			if begun != nil || closed != nil || r.State != ledger.Refunded || r.SendingBack.By != principal || r.ClosedBy != principal {
				t.Errorf("%v, %v: %+v", begun, closed, r)
			}
		})
	}
	// A table on this machine is nobody's of AWS.
	env := tableVariables(map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"})
	c, err := boot.ReadLocal(func(v string) string { return env[v] })
	if err != nil {
		t.Fatal(err)
	}
	if who, err := principalOf(func(v string) string { return env[v] }, c.Ledger); who != nil || err != nil {
		t.Errorf("a local table: %v, %v", who != nil, err)
	}
	delete(env, "AWS_ENDPOINT_URL_DYNAMODB")
	if c, err = boot.ReadLocal(func(v string) string { return env[v] }); err != nil {
		t.Fatal(err)
	}
	if who, err := principalOf(func(v string) string { return env[v] }, c.Ledger); who == nil || err != nil {
		t.Errorf("a table of AWS: nobody is asked: %v", err)
	}
}

func tableVariables(more map[string]string) map[string]string {
	env := map[string]string{"LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
	maps.Copy(env, more)
	return env
}
