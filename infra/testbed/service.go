package testbed

import (
	"maps"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

// Alone are the settings of a service that is to reach nothing but what its
// test gives it: no view of a chain and no registry; and no rate limit, since
// all clients of a suite share one address.
func Alone() map[string]string {
	return map[string]string{"RPC_URL": "none", "RDAP_BOOTSTRAP_URL": "http://127.0.0.1:9/", "RATE_LIMIT_PER_MINUTE": "0"}
}

// Local is the command of the local runner, a program, with its ledger in a
// folder, on a port that it chooses. The settings are these, the later ones
// first, and Alone.
func Local(program, dir string, settings ...map[string]string) *exec.Cmd {
	all := Alone()
	all["LOCAL_ADDR"], all["LEDGER_FILE"] = "127.0.0.1:0", filepath.Join(dir, "ledger.db")
	for _, s := range settings {
		maps.Copy(all, s)
	}
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = dir, Environment(all)
	return cmd
}

// Environment is a list of variables, as a process takes it.
func Environment(variables map[string]string) []string {
	list := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		list = append(list, name+"="+variables[name])
	}
	return list
}

// Deployment is the built functions as the template deploys them.
type Deployment struct {
	Functions string // the folder with <slug>/bootstrap
	// Parameters are the template's; without PayTo that of the local runner is
	// paid.
	Parameters map[string]string
	// Environment is on top of what the template gives the functions.
	Environment map[string]string
	// Sound wants every invocation to have ended by itself when the test ends.
	Sound bool
	// Configure may change the host before it starts; nil does not.
	Configure func(*lambdahost.Config)
}

// Open runs the functions behind a gateway until the test ends, and returns the
// gateway's URL.
func (d Deployment) Open(tb testing.TB) (host *lambdahost.Host, url string) {
	tb.Helper()
	parameters := map[string]string{"PayTo": Account(1)}
	maps.Copy(parameters, d.Parameters)
	config, err := lambdahost.FromTemplate(filepath.Join(Root(tb), "template.yaml"), d.Functions, parameters, d.Environment)
	if err != nil {
		tb.Fatal(err)
	}
	if d.Configure != nil {
		d.Configure(&config)
	}
	if host, err = lambdahost.New(config); err != nil {
		tb.Fatal(err)
	}
	gateway := httptest.NewServer(host)
	tb.Cleanup(func() {
		gateway.Close()
		host.Close()
		for _, name := range host.Names() {
			if st := host.Stats(name); d.Sound && st.Errors != 0 {
				tb.Errorf("%s: %d invocations failed, %d of them timed out", name, st.Errors, st.TimedOut)
			}
		}
	})
	return host, gateway.URL
}
