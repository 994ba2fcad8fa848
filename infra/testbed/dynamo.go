package testbed

import (
	"context"
	"crypto/rand"
	"os/exec"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
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
	cmd := exec.Command(Node(t, dir), "serve.js")
	cmd.Dir = dir
	return Dynamo{URL: startPeer(t, cmd, "").URL}
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

// Settings are the variables of a program whose ledger is a table of the server.
func (s Dynamo) Settings(table string) map[string]string {
	return map[string]string{
		"LEDGER_TABLE": table, "AWS_ENDPOINT_URL_DYNAMODB": s.URL, "AWS_REGION": DynamoRegion,
		"AWS_ACCESS_KEY_ID": DynamoKeyID, "AWS_SECRET_ACCESS_KEY": DynamoSecret,
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
