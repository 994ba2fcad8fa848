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

// The region and the credentials that the tests use. The servers accept any others as well.
const (
	DynamoRegion = "us-east-1"
	DynamoKeyID  = "local"
	DynamoSecret = "local"
)

// patience replaces the timeouts of production, which are too short for a busy machine.
const patience = 30 * time.Second

// Dynamo is a running server. StartDynamo starts dynalite; StartDynamoLocal starts DynamoDB
// Local.
type Dynamo struct {
	URL string // the URL of the server, http://127.0.0.1:port
}

// StartDynamo runs a new, empty dynalite until the test ends. If dynalite is missing,
// StartDynamo installs it with npm. It skips the test under -short, or if dynalite cannot be
// installed.
func StartDynamo(t testing.TB) Dynamo {
	if testing.Short() {
		t.Skip("runs in make verify: needs Node for a DynamoDB-compatible server")
	}
	dir := testbed.PeerFolder("dynalite")
	cmd := exec.Command(testbed.Node(t, dir), "serve.js")
	cmd.Dir = dir
	return Dynamo{URL: programs.StartPeer(t, cmd, "").URL}
}

// Config returns a configuration for dynamo.NewClient. A client with this configuration uses
// the server s, with timeouts that are long enough for a busy machine.
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

// Settings returns the environment variables of a program whose ledger is a table of the server.
func (s Dynamo) Settings(table string) map[string]string {
	return map[string]string{
		"LEDGER_TABLE":              table,
		"AWS_ENDPOINT_URL_DYNAMODB": s.URL,
		"AWS_REGION":                DynamoRegion,
		"AWS_ACCESS_KEY_ID":         DynamoKeyID,
		"AWS_SECRET_ACCESS_KEY":     DynamoSecret,
	}
}

// Open returns a table of the server, with timeouts that are long enough for a busy machine.
func (s Dynamo) Open(table string) *dynamo.Table {
	t := dynamo.New(dynamo.APIOf(dynamo.NewClient(s.Config())), table)
	t.Timeout = patience
	return t
}

// Table creates an empty ledger table with a new name. Expired items stay in the table:
// the server would delete them by the machine's clock, but a test may use another clock.
func (s Dynamo) Table(t testing.TB) string {
	name, client := "ledger-"+rand.Text(), dynamo.NewClient(s.Config())
	testbed.Check(dynamo.Create(t.Context(), client, name))
	off := &types.TimeToLiveSpecification{AttributeName: aws.String(dynamo.AttrExpiresAt), Enabled: aws.Bool(false)}
	_, err := client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &name, TimeToLiveSpecification: off})
	said, ok := errors.AsType[smithy.APIError](err)
	if !ok || said.ErrorCode() != "UnknownOperationException" { // the server may not support expiry
		testbed.Check(err)
	}
	return name
}

// DeployedTable is like Table, but the table deletes expired items, as a deployed table does.
func (s Dynamo) DeployedTable(t testing.TB) string {
	name := s.Table(t)
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(s.Config()), name))
	return name
}

// Store creates and opens an empty table with a new name.
func (s Dynamo) Store(t testing.TB) *dynamo.Table {
	return s.Open(s.Table(t))
}

// Written returns the state of the payment that a request to DynamoDB writes, and the payer in
// lower case. Both are empty if the request writes no payment.
func Written(r *http.Request, body []byte) (state ledger.State, payer string) {
	var q struct {
		Item map[string]struct{ S string }
	}
	_ = json.Unmarshal(body, &q) // if the request is not a write, q has no item
	key := strings.Split(q.Item[dynamo.AttrKey].S, "|")
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem") || len(key) != 4 {
		return "", ""
	}
	return ledger.State(q.Item[dynamo.AttrState].S), key[2]
}

// mavenPlugin copies the dependencies in a pom.xml, and their own dependencies, into a folder.
const mavenPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// StartDynamoLocal runs Amazon's DynamoDB Local, in memory, until the test ends. It needs
// Java, and downloads DynamoDB Local once with Maven. It skips the test under -short, if Java
// is missing, or if the download fails.
func StartDynamoLocal(t testing.TB) Dynamo {
	if testing.Short() {
		t.Skip("runs in make verify: needs Java for DynamoDB Local")
	}
	java, dir := testbed.Find(t, "Java for DynamoDB Local", "java"), testbed.PeerFolder("dynamolocal")
	if err := fetchLocal(t.Context(), dir); err != nil {
		t.Skipf("needs DynamoDB Local, which cannot be fetched: %v", err)
	}
	addr := testbed.FreeAddr(t) // the server does not accept port 0
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(java, "-Xmx256m", "-Djava.library.path=lib", "-cp", "lib/*",
		"com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-inMemory", "-disableTelemetry", "-port", port)
	cmd.Dir = dir
	programs.StartPeer(t, cmd, "Started ServerConnector")
	return Dynamo{URL: "http://" + addr}
}

// fetchLocal downloads the pinned version of DynamoDB Local, unless it was downloaded before.
func fetchLocal(ctx context.Context, dir string) error {
	lib := filepath.Join(dir, "lib")
	return testbed.Install(dir, filepath.Join(dir, "pom.xml"), filepath.Join(lib, "installed.xml"), func() error {
		err := os.RemoveAll(lib)
		return errors.Join(err, programs.Succeed(exec.CommandContext(ctx, "mvn", "-q", "-B", mavenPlugin, "-DoutputDirectory=lib"), dir))
	})
}
