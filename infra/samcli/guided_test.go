package samcli

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// TestGuided answers the questions of "sam deploy --guided". The CLI accepts no empty answer
// for a hidden parameter, so the test answers with a space. The functions must treat this space
// as no value. Every other parameter except the payee must have a default.
func TestGuided(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testbed.Root(), "template.yaml")
	const payee = "PayTo=" + boot.LocalPayTo
	out, err := deployed.Tool(t, "guided.py", path, "", payee).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "click.exceptions.Abort") {
		t.Errorf("an empty answer is taken, or something else is wrong: %v\n%s", err, out)
	}
	values := map[string]string{}
	given := programs.Run(t, deployed.Tool(t, "guided.py", path, " ", payee))
	if err := json.Unmarshal(given, &values); err != nil {
		t.Fatalf("%v\n%s", err, given)
	}
	tpl := testbed.Must(sam.Read(path))
	if got, want := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(tpl.Parameters)); !slices.Equal(got, want) {
		t.Errorf("it asks for %v, the template has %v", got, want)
	}
	for name, p := range tpl.Parameters {
		switch v := values[name]; {
		case p.NoEcho && v != " ":
			t.Errorf("%s: %q, want a blank", name, v)
		case !p.NoEcho && p.Default != nil && v != *p.Default:
			t.Errorf("%s: %q, want the default %q", name, v, *p.Default)
		}
	}
	values["Ledger"] = "ledger"
	// tpl.Functions must accept the values, as CloudFormation does. An environment variable of
	// a function may be a single space only if it is in the list below: for these variables,
	// pkg/boot tests that a space means no value.
	functions := testbed.Must(tpl.Functions(values))
	tested := []string{"FACILITATOR_KEY_SECRET", "FACILITATOR_TOKEN", "FACILITATOR_FALLBACK_KEY_SECRET", "FACILITATOR_FALLBACK_TOKEN", "RPC_URL", "RECEIPT_KEY"}
	blanks := 0
	for _, f := range functions {
		for variable, v := range f.Env {
			if v == "" || strings.TrimSpace(v) != "" {
				continue
			}
			blanks++
			if !slices.Contains(tested, variable) {
				t.Errorf("%s: %s is a blank, and pkg/boot is not tested with that", f.Name, variable)
			}
		}
	}
	if blanks == 0 {
		t.Error("no function reads what was hidden")
	}
}
