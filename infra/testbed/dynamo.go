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

// StartDynamo runs a new, empty server until the test ends. It installs the
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

// Config returns what dynamo.NewClient needs to talk to the server, with time-outs for a
// busy machine.
func (s Dynamo) Config() aws.Config {
	return aws.Config{
		Region: DynamoRegion, BaseEndpoint: &s.URL, HTTPClient: dynamo.HTTPClient(patience, 16<<20, 5*time.Second),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: DynamoKeyID, SecretAccessKey: DynamoSecret}, nil
		}),
	}
}

// Settings are the variables of a program whose ledger is a table of the server.
func (s Dynamo) Settings(table string) map[string]string {
	return map[string]string{
		"LEDGER_TABLE": table, "AWS_ENDPOINT_URL_DYNAMODB": s.URL, "AWS_REGION": DynamoRegion,
		"AWS_ACCESS_KEY_ID": DynamoKeyID, "AWS_SECRET_ACCESS_KEY": DynamoSecret,
	}
}

// Open returns a table of the server, with time-outs for a busy machine.
func (s Dynamo) Open(table string) *dynamo.Table {
	t := dynamo.New(dynamo.NewClient(s.Config()), table)
	t.Timeout = patience
	return t
}

// Table creates an empty ledger table with a new name.
func (s Dynamo) Table(t testing.TB) string {
	t.Helper()
	name := "ledger-" + rand.Text()
	if err := dynamo.Create(t.Context(), dynamo.NewClient(s.Config()), name); err != nil {
		t.Fatal(err)
	}
	return name
}

// Store returns a new, empty table.
func (s Dynamo) Store(t testing.TB) *dynamo.Table {
	t.Helper()
	return s.Open(s.Table(t))
}
