package e2e

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
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

// shopEnv returns the environment of a shop's function with a new table.
func shopEnv(t *testing.T, db cloud.Dynamo, bank *testbed.Facilitator) map[string]string {
	t.Helper()
	env := db.Settings(db.DeployedTable(t))
	env["FACILITATOR"], env["PAY_TO"], env["ORIGIN"] = bank.URL, testbed.Account(1), "https://shop.example"
	return env
}

// TestShopFunction checks the Lambda function of a shop other than Hostfacts
// (infra/shop/function), with a ledger in a DynamoDB table. A payment that is sent to two
// processes must be charged once. The function's scheduled event must then find nothing that
// is owed or in doubt, and no record that it cannot read.
func TestShopFunction(t *testing.T) {
	t.Parallel()
	db, bank, log := cloud.StartDynamoLocal(t), testbed.StartFacilitator(t), new(programs.Output)
	env := shopEnv(t, db, bank)
	env["NODE"] = "http://127.0.0.1:1" // nothing listens there
	folder, slug := filepath.Split(testbed.ShopFunction(t))
	host := cloud.Deployment{Logs: log, Functions: folder, FunctionList: []sam.Function{
		{Name: "Shop", Slug: slug, Timeout: 29 * time.Second, Env: env, Routes: []string{"GET /weather"}},
	}}.Open(t)

	client := &x402test.Client{HTTP: http.DefaultClient, Wallet: testbed.Must(x402test.NewWallet(rand.Reader)), Now: time.Now}
	url := host.URL + "/weather?city=Oslo"
	signature, err := client.Sign(t.Context(), url)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, replayed := range []string{"", "true"} {
		r := testbed.Must(client.Get(t.Context(), url, signature))
		if r.Status != http.StatusOK || string(r.Body) != `{"city":"Oslo","weather":"fair"}` || r.Header.Get(x402.HeaderReplayed) != replayed {
			t.Fatalf("%d %v %s\n%s", r.Status, r.Header, r.Body, log.String())
		}
		host.Kill("Shop")
	}
	if moved := bank.Moved(client.Wallet.Address().String()); len(moved) != 1 {
		t.Errorf("%d transfers", len(moved))
	}
	var found struct{ Failed, Listed, Owed int }
	payload, _, err := host.Call("Shop", []byte(`{"reconcile":true}`))
	if err := errors.Join(err, json.Unmarshal(payload, &found)); err != nil || found.Failed+found.Listed+found.Owed > 0 {
		t.Errorf("%+v, %v\n%s", found, err, log.String())
	}
}
