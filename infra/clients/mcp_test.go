package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// tools is the URL of the service's tools.
func (s service) tools() string { return s.url + catalog.PathMCP }

// toolWorlds are the ways to run the service for clients of its tools.
func toolWorlds() map[string]func(*testing.T) service {
	return map[string]func(*testing.T) service{"local": localTools, "lambda": lambdaTools}
}

// anyName is a resolver that answers every question about an address with one of
// documentation.
func anyName(t *testing.T) string {
	t.Helper()
	return resolverOf(t, "*. 30 A 192.0.2.77", nil)
}

// localTools runs the built local runner, which reaches nothing but its resolver.
func localTools(t *testing.T) service {
	t.Helper()
	s := newWorld(t, anyName(t)).start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service said:\n%s", s.log())
		}
	})
	return s
}

// lambdaTools runs the built functions of the template behind a gateway.
func lambdaTools(t *testing.T) service {
	t.Helper()
	w, db := newWorld(t, anyName(t)), dynamotest.Start(t)
	extra := testbed.Alone()
	extra["AWS_ENDPOINT_URL_DYNAMODB"] = db.URL
	_, url := testbed.Deployment{
		Functions:   testbed.Functions(t),
		Parameters:  map[string]string{"Ledger": db.Table(t), "FacilitatorUrl": w.books.URL, "DnsResolvers": w.env["DNS_RESOLVERS"]},
		Environment: extra,
		Configure: func(c *lambdahost.Config) {
			c.Logs, c.Domain = io.Discard, "agents.execute-api.us-east-1.amazonaws.com"
		},
	}.Open(t)
	return service{url: url, books: w.books}
}

// mcpCommand prepares a program that runs in testdata/mcp, with a key to pay with.
func mcpCommand(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := testbed.Command(t, name, args...)
	cmd.Dir = filepath.Join("testdata", "mcp")
	cmd.Env = append(cmd.Env, "PRIVATE_KEY="+newPayer())
	return cmd
}

// bin is the path of an installed npm program; node itself is one of them, because
// the conformance suite needs a newer one than many machines have.
func bin(t *testing.T, name string) string {
	t.Helper()
	testbed.Node(t, ".")
	path, err := filepath.Abs(filepath.Join("node_modules", ".bin", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// printed decodes the first line of what a program prints that must succeed.
func printed(t *testing.T, cmd *exec.Cmd, v any) {
	t.Helper()
	line, _, _ := strings.Cut(string(testbed.Run(t, cmd)), "\n")
	if err := json.Unmarshal([]byte(line), v); err != nil {
		t.Fatal(fmt.Errorf("%w in %s", err, line))
	}
}
