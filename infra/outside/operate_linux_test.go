package outside

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const operateCommand = module + "/infra/local/operate"

// TestOperateWithoutAClone runs the operator's commands in an empty folder, on the ledger file
// of a shop. The commands must list what the shop owes. They must not suggest a command that
// needs make, because make needs a clone.
func TestOperateWithoutAClone(t *testing.T) {
	loopback()
	folder := t.TempDir()
	path := filepath.Join(folder, "shop.db")
	createOwingLedger(t, path)
	program := operateCommand + "@" + packModule(t).Module.Version
	run := func(code int, environment string, arguments ...string) string {
		t.Helper()
		cmd := exec.Command("go", append([]string{"run", program}, arguments...)...)
		cmd.Dir = filepath.Join(folder, "empty")
		testbed.Check(os.MkdirAll(cmd.Dir, 0o700))
		cmd.Env = append(readerEnvironment(t, folder), "LOWEST_PRICE=10000", environment)
		out, err := cmd.CombinedOutput()
		// If the program fails, "go run" itself always exits with 1, and prints the exit status
		// of the program.
		status := fmt.Sprintf("exit status %d\n", code)
		if (err != nil) != (code != 0) || err != nil && !strings.HasSuffix(string(out), status) {
			t.Errorf("operate %q: %v, want exit status %d\n%s", arguments, err, code, out)
		}
		if strings.Contains(string(out), "make ") || strings.Contains(string(out), "FORCE=") {
			t.Errorf("operate %q wants make, which is not there:\n%s", arguments, out)
		}
		return string(out)
	}
	ledger := "LEDGER_FILE=" + path
	owed := run(0, ledger, "owed")
	for _, want := range []string{"GET http://127.0.0.1:8080/weather?city=Atlantis", "1 owed in " + path} {
		if !strings.Contains(owed, want) {
			t.Errorf("owed does not say %q:\n%s", want, owed)
		}
	}
	for _, c := range []struct {
		code        int
		environment string
		arguments   []string
		wantOutput  string
	}{
		{2, ledger, nil, "usage: go run " + program + " reconcile|owed|"},
		{2, ledger, []string{"payer"}, "usage: go run " + program + " payer [-json] WALLET"},
		{1, "LEDGER_FILE=nowhere.db", []string{"owed"}, "there is no ledger to look at"},
		{1, ledger, []string{"refund", "x"}, "as go run " + program + " owed and go run " + program + " payer print it"},
		{0, ledger, []string{"reconcile"}, "owed       1,"},
	} {
		if out := run(c.code, c.environment, c.arguments...); !strings.Contains(out, c.wantOutput) {
			t.Errorf("operate %q does not say %q:\n%s", c.arguments, c.wantOutput, out)
		}
	}
}

// createOwingLedger creates the ledger file of a shop that owes an answer: a payer paid the
// shop, and the shop's handler answered with 503.
func createOwingLedger(t *testing.T, path string) {
	t.Helper()
	money, err := x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: testbed.LocalTerms(t), Now: time.Now})
	testbed.Check(err)
	store := testbed.Must(file.Open(path))
	config := x402http.Config{PayTo: testbed.Account(1), Facilitator: testbed.Serve(t, money), Ledger: store, Origin: "http://127.0.0.1:8080", Evidence: money.Evidence()}
	config.Log = slog.New(slog.DiscardHandler)
	seller := testbed.Must(x402http.New(config))
	mux := http.NewServeMux()
	seller.Handle(mux, "GET /weather", "0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	client := testbed.NewClient(t, http.DefaultClient)
	reply, _, err := client.Buy(t.Context(), testbed.Serve(t, mux)+"/weather?city=Atlantis")
	if err != nil || reply.Status != http.StatusServiceUnavailable {
		t.Fatalf("the shop answers %d %s, %v", reply.Status, reply.Body, err)
	}
	testbed.Check(store.Close())
}
