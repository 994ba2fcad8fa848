package runbook

import (
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// TestPrintedAWS runs every AWS CLI command that the runbook prints, against a server that
// refuses all requests. The CLI must accept each command and send a request. The test leaves
// out the "aws configure" commands, because they send no request.
func TestPrintedAWS(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
	})
	commands := regexp.MustCompile(`(?m)^    (aws .*)$|\x60(aws [a-z0-9-]+\s[a-z-]+\s--[^\x60]*)\x60`).FindAllStringSubmatch(runbook(), -1)
	const least = 5
	if len(commands) < least {
		t.Errorf("%d commands, want %d at least", len(commands), least)
	}
	for _, m := range commands {
		command := strings.Join(strings.Fields(m[1]+m[2]), " ")
		command = regexp.MustCompile(`<[^>]*>|…`).ReplaceAllString(command, "word")
		if strings.HasPrefix(command, "aws configure ") {
			continue
		}
		before := asked.Load()
		out, err := deployed.CLI(t, url, command).CombinedOutput()
		if err == nil || asked.Load() == before {
			t.Errorf("%s: %v, asked %t\n%s", command, err, asked.Load() > before, out)
		}
	}
}

// TestUnprotectedTable runs "make owed" on an unprotected table. "make owed" must fail and print
// commands that protect the table. The test runs these commands. Afterwards "make owed" must
// succeed.
func TestUnprotectedTable(t *testing.T) {
	t.Parallel()
	runOnEmulator(t, runPrintedProtection)
}

func runPrintedProtection(t testing.TB, server cloud.Dynamo) {
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(server.Config()), "ledger"))
	owed := func() (string, error) {
		cmd := testbed.Command(t, testbed.Program(t, operateCommand), "owed")
		cmd.Env = testbed.Environment(server.Settings("ledger"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	said, err := owed()
	commands := regexp.MustCompile(`(?m)^  aws .*$`).FindAllString(said, -1)
	if err == nil || len(commands) == 0 {
		t.Fatalf("%v\n%s", err, said)
	}
	programs.Run(t, deployed.CLI(t, server.URL, strings.Join(commands, "\n")))
	if said, err := owed(); err != nil || !strings.Contains(said, "nothing is owed") {
		t.Errorf("after %q: %v\n%s", commands, err, said)
	}
}
