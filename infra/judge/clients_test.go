package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

// clientsFolder is the folder of the programs that run third-party clients.
const clientsFolder = "../clients"

// TestClients runs the judge's row "reply-lost", in which the reply to the first payment is
// lost. The payers are unmodified third-party clients. Each client must pay twice at a seller
// that keeps no record, and once at our shop. The same must hold for the judge's own payers.
func TestClients(t *testing.T) {
	t.Parallel()
	testbed.Node(t, clientsFolder)
	python := testbed.Python(t, filepath.Join(clientsFolder, "testdata", "requirements.txt"))
	overHTTP := []judge.Way{judge.New, "@x402/fetch", "@x402/axios", "httpx", "requests"}
	overMCP := []judge.Way{judge.NewTool, "mcp-sdk-1", "mcp-sdk-2"}
	checkCharges := func(want int, ways []judge.Way, args ...string) {
		t.Helper()
		list := strings.Join(wayNames(ways), ",")
		args = append([]string{"-clients", clientsFolder, "-python", python, "-way", list, "-row", "reply-lost", "-format", "json"}, args...)
		_, out, notes := runJudge(t, args...)
		var report judge.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v\n%s", err, notes)
		}
		if got := len(report.Rows[0].Cases); got != len(ways) {
			t.Errorf("%d have bought, want %d\n%s", got, len(ways), notes)
		}
		for _, c := range report.Rows[0].Cases {
			if c.Transfers != want || c.Answers != 1 {
				t.Errorf("%s was charged %d times, want %d, and got %d answers\n%s", c.Way, c.Transfers, want, c.Answers, strings.Join(c.Steps, "\n"))
			}
		}
	}
	addr := address(t)
	checkCharges(2, overHTTP, "-url", "http://"+addr+"/weather", "LOCAL_ADDR="+addr+" "+forgetfulSeller(t))

	addr = address(t)
	shop := testbed.Shop(t, t.TempDir(), nil).Path
	checkCharges(1, append(overHTTP, overMCP...), "-url", "http://"+addr+"/weather?city=Oslo", "-tool-url", "http://"+addr+"/mcp",
		"-tool", "weather", "-args", `{"city":"Oslo"}`, "-dir", t.TempDir(),
		"ADDR="+addr+" WINDOW=600s PAY_TO="+testbed.Account(1)+" FACILITATOR={facilitator} NODE={node} exec "+shop)
}

func wayNames(ways []judge.Way) []string {
	var all []string
	for _, one := range ways {
		all = append(all, string(one))
	}
	return all
}

// TestNoClients checks the error messages if -clients is not the folder infra/clients, and if
// no client is installed.
func TestNoClients(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	args := []string{"-url", "http://127.0.0.1:1/", "-clients", empty, "true"}
	if status, _, notes := runJudge(t, args...); status != exitNotJudged || !strings.Contains(notes, "-clients must be the folder infra/clients") {
		t.Errorf("%d %s", status, notes)
	}
	testbed.Check(os.Mkdir(filepath.Join(empty, "testdata"), 0o700))
	status, _, notes := runJudge(t, append([]string{"-python", "no-python"}, args...)...)
	if status != exitNotJudged || !strings.Contains(notes, "requests is not installed") || !strings.Contains(notes, "no client of -clients is installed") {
		t.Errorf("%d %s", status, notes)
	}
}
