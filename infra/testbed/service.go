package testbed

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/infra/sam"
)

// Alone returns settings for a service that must not reach any server outside its test. The
// service has no chain node and no RDAP registry. It also has no rate limit, because all
// clients of a suite share one address.
func Alone() map[string]string {
	return map[string]string{"RPC_URL": "none", "RDAP_BOOTSTRAP_URL": "http://127.0.0.1:9/", "RATE_LIMIT_PER_MINUTE": "0"}
}

// Local returns a command that runs the local runner, whose path is program. The runner
// chooses a port, and its ledger is in the folder dir. Its settings are those of Alone and of
// each map in settings. If a setting occurs more than once, the last value counts.
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

// Parameters returns the settings with the names that the template's parameters have. RPC_URL,
// for example, becomes RpcUrl.
func Parameters(settings map[string]string) map[string]string {
	all := map[string]string{}
	for name, value := range settings {
		all[sam.Pascal(strings.ToLower(strings.ReplaceAll(name, "_", "-")))] = value
	}
	return all
}

// Environment returns variables in the form of exec.Cmd.Env, sorted by name.
func Environment(variables map[string]string) []string {
	list := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		list = append(list, name+"="+variables[name])
	}
	return list
}
