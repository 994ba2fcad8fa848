package cloud

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// What the server takes: any region and credentials, so these.
const (
	DynamoRegion = "us-east-1"
	DynamoKeyID  = "local"
	DynamoSecret = "local"
)

// patience replaces the production time-outs, which are not what is tested.
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
	if testing.Short() {
		t.Skip("runs in make verify: needs Node for a DynamoDB-compatible server")
	}
	dir := testbed.PeerFolder("dynalite")
	cmd := exec.Command(testbed.Node(t, dir), "serve.js")
	cmd.Dir = dir
	return Dynamo{URL: programs.StartPeer(t, cmd, "").URL}
}

// Config returns what dynamo.NewClient needs to talk to the server, with time-outs for a
// busy machine.
func (s Dynamo) Config() aws.Config {
	return aws.Config{
		Region:       DynamoRegion,
		BaseEndpoint: &s.URL,
		HTTPClient:   dynamo.HTTPClient(patience, 16<<20, 5*time.Second),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: DynamoKeyID, SecretAccessKey: DynamoSecret}, nil
		}),
	}
}

// Settings are the variables of a program whose ledger is a table of the server.
func (s Dynamo) Settings(table string) map[string]string {
	return map[string]string{
		"LEDGER_TABLE":              table,
		"AWS_ENDPOINT_URL_DYNAMODB": s.URL,
		"AWS_REGION":                DynamoRegion,
		"AWS_ACCESS_KEY_ID":         DynamoKeyID,
		"AWS_SECRET_ACCESS_KEY":     DynamoSecret,
	}
}

// Open returns a table of the server, with time-outs for a busy machine.
func (s Dynamo) Open(table string) *dynamo.Table {
	t := dynamo.New(dynamo.APIOf(dynamo.NewClient(s.Config())), table)
	t.Timeout = patience
	return t
}

// Table creates an empty ledger table with a new name. It keeps old items: tests have their
// own clocks, and the server goes by that of the machine.
func (s Dynamo) Table(t testing.TB) string {
	name, client := "ledger-"+rand.Text(), dynamo.NewClient(s.Config())
	testbed.Check(dynamo.Create(t.Context(), client, name))
	off := &types.TimeToLiveSpecification{AttributeName: aws.String(dynamo.AttrExpiresAt), Enabled: aws.Bool(false)}
	_, err := client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &name, TimeToLiveSpecification: off})
	said, ok := errors.AsType[smithy.APIError](err)
	if !ok || said.ErrorCode() != "UnknownOperationException" { // of a server without TTL
		testbed.Check(err)
	}
	return name
}

// DeployedTable is Table, with what a deployed one has: it deletes old items.
func (s Dynamo) DeployedTable(t testing.TB) string {
	name := s.Table(t)
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(s.Config()), name))
	return name
}

// Store returns a new, empty table.
func (s Dynamo) Store(t testing.TB) *dynamo.Table {
	return s.Open(s.Table(t))
}

// Written is what a request to a server writes of a payment: its state, and its payer in
// lower case. Both are empty for any other request.
func Written(r *http.Request, body []byte) (state ledger.State, payer string) {
	var q struct {
		Item map[string]struct{ S string }
	}
	_ = json.Unmarshal(body, &q) // only a write has an item
	key := strings.Split(q.Item[dynamo.AttrKey].S, "|")
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem") || len(key) != 4 {
		return "", ""
	}
	return ledger.State(q.Item[dynamo.AttrState].S), key[2]
}

// mavenPlugin copies what the pom.xml names, with all that this needs.
const mavenPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// StartDynamoLocal runs DynamoDB Local, Amazon's own, in memory, until the test ends. It
// needs Java and fetches the program by Maven once; without them, and under -short,
// it skips the test.
func StartDynamoLocal(t testing.TB) Dynamo {
	if testing.Short() {
		t.Skip("runs in make verify: needs Java for DynamoDB Local")
	}
	java, dir := testbed.Find(t, "Java for DynamoDB Local", "java"), testbed.PeerFolder("dynamolocal")
	if err := fetchLocal(t.Context(), dir); err != nil {
		t.Skipf("needs DynamoDB Local, which cannot be fetched: %v", err)
	}
	addr := testbed.FreeAddr(t) // it takes no port 0
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(java, "-Xmx256m", "-Djava.library.path=lib", "-cp", "lib/*",
		"com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-inMemory", "-disableTelemetry", "-port", port)
	cmd.Dir = dir
	programs.StartPeer(t, cmd, "Started ServerConnector")
	return Dynamo{URL: "http://" + addr}
}

// fetchLocal puts the pinned version in place, unless it is there.
func fetchLocal(ctx context.Context, dir string) error {
	lib := filepath.Join(dir, "lib")
	return testbed.Install(dir, filepath.Join(dir, "pom.xml"), filepath.Join(lib, "installed.xml"), func() error {
		err := os.RemoveAll(lib)
		return errors.Join(err, programs.Succeed(exec.CommandContext(ctx, "mvn", "-q", "-B", mavenPlugin, "-DoutputDirectory=lib"), dir))
	})
}
