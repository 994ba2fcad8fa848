package testbed

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// What the server takes: any region and credentials, so these.
const (
	DynamoRegion = "us-east-1"
	DynamoKeyID  = "local"
	DynamoSecret = "local"
)

// patience replaces the production time-outs in tests, which are about what is
// written and not about how fast a busy machine is.
const patience = 30 * time.Second

// Dynamo is a running server. StartDynamo starts dynalite, and
// StartDynamoLocal DynamoDB Local.
type Dynamo struct {
	URL string // http://127.0.0.1:port
}

// StartDynamo runs a server of its own, empty, until the test ends. It installs the
// server's Node package first where that is missing and npm is not, and skips
// the test where that cannot be done, and under -short.
func StartDynamo(t testing.TB) Dynamo {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in make verify: needs Node for a DynamoDB-compatible server")
	}
	dir := peerFolder(t, "dynalite")
	port, err := launch(t, Node(t, dir), dir)
	if err != nil {
		t.Fatalf("start the DynamoDB-compatible server: %v", err)
	}
	return Dynamo{URL: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}

// ClientConfig returns what dynamo.NewClient needs to talk to the server.
func (s Dynamo) ClientConfig() dynamo.ClientConfig {
	return dynamo.ClientConfig{
		Region:   DynamoRegion,
		Endpoint: s.URL,
		Credentials: func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: DynamoKeyID, SecretAccessKey: DynamoSecret}, nil
		},
		AttemptTimeout: patience,
	}
}

// Table creates an empty ledger table with a name of its own.
func (s Dynamo) Table(t testing.TB) string {
	t.Helper()
	name := "ledger-" + rand.Text()
	if err := dynamo.EnsureTable(t.Context(), dynamo.NewClient(s.ClientConfig()), name); err != nil {
		t.Fatal(err)
	}
	return name
}

// Store returns a Store on an empty table of its own.
func (s Dynamo) Store(t testing.TB) *dynamo.Ledger {
	t.Helper()
	return dynamo.NewLedger(dynamo.Config{
		API: dynamo.NewClient(s.ClientConfig()), Table: s.Table(t), Timeout: patience,
	})
}

// launch starts the server and returns its port once it listens.
func launch(t testing.TB, node, dir string) (int, error) {
	cmd := exec.Command(node, "serve.js")
	cmd.Dir = dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	// The server ends when its standard input does: with us, however we end.
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "signal: killed" is what was asked for
	})
	timeout := time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })
	defer timeout.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait() // complaints are complete after it
		return 0, errors.Join(err, errors.New(complaints.String()))
	}
	return strconv.Atoi(strings.TrimSpace(line))
}
