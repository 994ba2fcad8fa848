package e2e

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// lateFunction is a Lambda function with its ledger in a DynamoDB table. Its handler exceeds
// the function's time limit on the first run for each payment.
type lateFunction struct {
	*testing.T
	env       map[string]string
	folder    string
	log       programs.Output
	client    *x402test.Client
	signature string
}

// open starts the function behind a gateway. The function's clock is ahead of this machine's
// by the given duration, so a test need not wait for a lease to end.
func (f *lateFunction) open(ahead time.Duration) *cloud.Host {
	folder, slug := filepath.Split(f.folder)
	return cloud.Deployment{
		Logs: &f.log, Functions: folder, Environment: map[string]string{"AHEAD": ahead.String()},
		FunctionList: []sam.Function{{Name: "Late", Slug: slug, Timeout: 29 * time.Second, Env: maps.Clone(f.env), Routes: []string{"GET /weather"}}},
	}.Open(f)
}

// pay sends the payment and returns the answer.
func (f *lateFunction) pay(host *cloud.Host) x402test.Reply {
	f.Helper()
	return testbed.Must(f.client.Get(f.Context(), host.URL+"/weather?city=Oslo", f.signature))
}

// checkOwed calls the function as its schedule does. The function then checks its ledger,
// which must have the given number of owed answers, and no payment in doubt.
func (f *lateFunction) checkOwed(host *cloud.Host, answers int) {
	f.Helper()
	var found struct{ Failed, Open, Owed int }
	payload, _, err := host.Call("Late", []byte(`{"reconcile":true}`))
	if err := errors.Join(err, json.Unmarshal(payload, &found)); err != nil || found.Failed+found.Open > 0 || found.Owed != answers {
		f.Errorf("%+v, want %d owed, %v\n%s", found, answers, err, &f.log)
	}
}

// TestLateFunction pays a function whose handler runs too long, and kills the function's
// process, as Lambda does. The service must then owe the payer an answer. After the killed
// process's lease on the payment has ended, the payer sends the payment twice more. Another
// process must give the answer, and then repeat it. The payer must be charged once.
func TestLateFunction(t *testing.T) {
	t.Parallel()
	db, bank := cloud.StartDynamoLocal(t), testbed.StartFacilitator(t)
	late := make(chan struct{}, 1)
	tell := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { late <- struct{}{} }))
	t.Cleanup(tell.Close)
	f := &lateFunction{T: t, env: shopEnv(t, db, bank), folder: testbed.LateFunction(t), client: testbed.NewClient(t, http.DefaultClient)}
	f.env["TELL"] = tell.URL
	host := f.open(0)
	signature, err := f.client.Sign(t.Context(), host.URL+"/weather?city=Oslo")
	if err != nil {
		t.Fatalf("%v\n%s", err, &f.log)
	}
	f.signature = signature
	go func() {
		<-late
		host.Kill("Late")
	}()
	if r := f.pay(host); r.Status != http.StatusInternalServerError {
		t.Fatalf("as the process ended: %d %v %s\n%s", r.Status, r.Header, r.Body, &f.log)
	}

	const lease = 30 * time.Second
	host = f.open(lease)
	f.checkOwed(host, 1)
	for _, replayed := range []string{"", "true"} {
		r := f.pay(host)
		if r.Status != http.StatusOK || string(r.Body) != "fair in Oslo" || r.Header.Get(x402.HeaderReplayed) != replayed {
			t.Fatalf("after the lease: %d %v %s\n%s", r.Status, r.Header, r.Body, &f.log)
		}
	}
	f.checkOwed(host, 0)
	if moved := bank.Moved(f.client.Wallet.Address().String()); len(moved) != 1 {
		t.Errorf("%d transfers", len(moved))
	}
}
