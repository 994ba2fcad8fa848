package testbed

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/infra/sam"
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

// Parameters are settings by the names that the template's parameters have.
func Parameters(settings map[string]string) map[string]string {
	all := map[string]string{}
	for name, value := range settings {
		all[sam.Pascal(strings.ToLower(strings.ReplaceAll(name, "_", "-")))] = value
	}
	return all
}

// Environment is a list of variables, as a process takes it.
func Environment(variables map[string]string) []string {
	list := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		list = append(list, name+"="+variables[name])
	}
	return list
}
