package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// secretProgram runs this program, as "make secret" does, against an emulator of AWS.
type secretProgram struct {
	t           *testing.T
	api         *secretsmanager.Client
	env         map[string]string
	typedValues []string        // values that were typed, none of which may be printed
	printed     strings.Builder // everything that was printed
}

func newKeeper(t *testing.T) *secretProgram {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Python, and packages of PyPI")
	}
	url := deployed.Emulator(t)
	return &secretProgram{t: t, api: secretsmanager.NewFromConfig(cloud.Dynamo{URL: url}.Config()), env: map[string]string{
		"AWS_ENDPOINT_URL_SECRETS_MANAGER": url, "AWS_REGION": cloud.DynamoRegion, "CALLED_BY": "make",
		"AWS_ACCESS_KEY_ID": cloud.DynamoKeyID, "AWS_SECRET_ACCESS_KEY": cloud.DynamoSecret,
	}}
}

// runWithInput runs the program with a value on standard input.
func (k *secretProgram) runWithInput(value, arguments string) (out, notes string, ok bool) {
	k.t.Helper()
	k.typedValues = append(k.typedValues, strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" ,\n", r) })...)
	cmd := testbed.Command(k.t, testbed.Program(k.t, "./infra/local/secret"), strings.Fields(arguments)...)
	cmd.Env = testbed.Environment(k.env)
	var noted strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(value), &noted
	printed, err := cmd.Output()
	k.printed.Write(printed)
	k.printed.WriteString(noted.String())
	return string(printed), noted.String(), err == nil
}

// readSecret returns the members of the secret and its complete ARN.
func (k *secretProgram) readSecret(name string) (all map[string]any, arn string) {
	k.t.Helper()
	// The stage must be given. Without it, AWS returns the current version, but the emulator
	// returns the first version that was ever current.
	current := "AWSCURRENT"
	out := testbed.Must(k.api.GetSecretValue(k.t.Context(), &secretsmanager.GetSecretValueInput{SecretId: &name, VersionStage: &current}))
	testbed.Check(json.Unmarshal([]byte(*out.SecretString), &all))
	return all, *out.ARN
}

// TestSecretIsMerged creates a secret with one part, adds two parts, and changes one of the three.
// The other parts must stay. A value that the Lambda functions would refuse must not be written.
// No value may be printed.
func TestSecretIsMerged(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	private, public := receiptPair(t)
	if _, notes, ok := k.runWithInput("", "-name shop/facilitator"); ok || !strings.Contains(notes, `there is no secret "shop/facilitator" in us-east-1. make secret NAME=shop/facilitator SET=token creates it`) {
		t.Errorf("a secret that is not there: %s", notes)
	}
	out, notes, ok := k.runWithInput("first-token-of-a-shop\n", "-name shop/facilitator -set token -yes")
	if !ok || !strings.Contains(notes, "make secret shop/facilitator in us-east-1:\n  + token (sha256 ") {
		t.Fatalf("it is not made: %s", notes)
	}
	_, arn := k.readSecret("shop/facilitator")
	if out != "FacilitatorSecretArn="+arn+"\n" || !regexp.MustCompile(`:secret:shop/facilitator-[A-Za-z0-9]{6}$`).MatchString(arn) {
		t.Errorf("printed %q, for %s", out, arn)
	}
	for _, step := range []struct{ value, arguments, wantNote string }{
		{"https://one.example/key-of-node-1, https://two.example/key-of-node-2", "-set rpc_urls", "  + rpc_urls (sha256 "},
		{"RECEIPT_KEY=" + private + "\nRECEIPT_PUBLIC_KEYS=" + public + "\n", "-set receipt_key", "ReceiptPublicKeys must have " + public},
		{"second-token-of-a-shop", "-set token", " replaces (sha256 "},
		{"second-token-of-a-shop", "-set token", "nothing changes"},
	} {
		if _, notes, ok := k.runWithInput(step.value, "-yes -name "+arn+" "+step.arguments); !ok || !strings.Contains(notes, step.wantNote) {
			t.Errorf("%s: %s", step.arguments, notes)
		}
	}
	want := map[string]any{
		"token": "second-token-of-a-shop", "receipt_key": private,
		"rpc_urls": []any{"https://one.example/key-of-node-1", "https://two.example/key-of-node-2"},
	}
	if got, _ := k.readSecret(arn); !cmp.Equal(got, want) {
		t.Errorf("the secret holds (-want +got):\n%s", cmp.Diff(want, got))
	}
	if out, _, ok := k.runWithInput("", "-name shop/facilitator"); !ok || !strings.Contains(out, "rpc_urls     (sha256 ") || !strings.HasSuffix(out, "FacilitatorSecretArn="+arn+"\n") {
		t.Errorf("it shows %s", out)
	}
	for _, refused := range []struct{ value, arguments, wantNote string }{
		{"http://one.example/key-of-node-3", "-yes -set rpc_urls", "not a list of https URLs"},
		{"https://a.example https://b.example https://c.example https://d.example https://e.example https://f.example", "-yes -set rpc_urls", "more than 5"},
		{"not-the-key-of-receipts", "-yes -set receipt_key", "receipt_key of the secret must be"},
		{"an-id-of-a-key not-the-secret-of-a-key", "-yes -set key", "facilitator key secret is"},
		{"one two", "-yes -set token", "visible ASCII"},
		{"", "-yes -set token", "UNSET"},
		{"third-token-of-a-shop", "-set token", "YES=1 writes it without asking"},
		{"third-token-of-a-shop", "-yes -set token third-token-of-a-shop", "Never type a value on the command line"},
		{"", "-yes -set token -unset key", "usage: make secret NAME="},
		{"", "-yes -set tokens", "usage: make secret NAME="},
	} {
		if _, notes, ok := k.runWithInput(refused.value, "-name shop/facilitator "+refused.arguments); ok || !strings.Contains(notes, refused.wantNote) {
			t.Errorf("%s: written: %t, %s", refused.arguments, ok, notes)
		}
	}
	if got, _ := k.readSecret(arn); !cmp.Equal(got, want) {
		t.Errorf("what is refused has changed the secret (-want +got):\n%s", cmp.Diff(want, got))
	}
	k.checkNothingShown()
}

// checkNothingShown fails the test if a typed value was printed.
func (k *secretProgram) checkNothingShown() {
	k.t.Helper()
	const least = 8 // in bytes; a shorter text may occur by chance
	for _, value := range k.typedValues {
		value = strings.TrimPrefix(value, "RECEIPT_KEY=")
		public := strings.HasPrefix(value, "RECEIPT_PUBLIC_KEYS=")
		if len(value) > least && !public && strings.Contains(k.printed.String(), value) {
			k.t.Errorf("%q was shown", value)
		}
	}
}

// TestSecretThatIsDeleted shows and changes a secret that is marked for deletion. Both
// commands must fail and say that the secret is marked.
func TestSecretThatIsDeleted(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	if _, notes, ok := k.runWithInput("a-token", "-yes -name shop -set token"); !ok {
		t.Fatal(notes)
	}
	name := "shop"
	testbed.Must(k.api.DeleteSecret(t.Context(), &secretsmanager.DeleteSecretInput{SecretId: &name}))
	for _, arguments := range []string{"-name shop", "-yes -name shop -set token"} {
		if _, notes, ok := k.runWithInput("another-token", arguments); ok || !strings.Contains(notes, "read the secret: ") || !strings.Contains(notes, "marked deleted") { // "marked deleted" is the emulator's wording
			t.Errorf("%s: %s", arguments, notes)
		}
	}
}

// receiptPair returns a new private key for receipts and its public key, as "make receipt-key"
// prints them.
func receiptPair(t *testing.T) (private, public string) {
	t.Helper()
	out := testbed.Must(testbed.Command(t, testbed.Program(t, "./infra/local/keys"), "receipt-key").Output())
	m := regexp.MustCompile(`^RECEIPT_KEY=(\S+)\nRECEIPT_PUBLIC_KEYS=(\S+)\n$`).FindStringSubmatch(string(out))
	if m == nil {
		t.Fatal("make receipt-key no longer prints two lines")
	}
	testbed.Must(receipt.ParseKey(m[1]))
	return m[1], m[2]
}

// TestSecretOfACDPKey sets both members of a CDP key from the file that CDP provides. They
// must replace a token. Removing them must not remove the other members. The command must
// refuse a file that others can read, an invalid key, a change that would leave the secret
// empty, and a wrong name of the secret.
func TestSecretOfACDPKey(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	const half = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE" // 32 bytes in base64; a valid key has 64
	seed := "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA7aie8zrakLWKjqNAqbw1zZTIVdx3iQ6Y6wEihi1naKQ=="
	file := filepath.Join(t.TempDir(), "cdp_api_key.json")
	testbed.Check(os.WriteFile(file, []byte(`{"id":"id-of-a-key","privateKey":"`+seed+`"}`), 0o600))
	if _, notes, ok := k.runWithInput("a-token", "-yes -name shop -set token"); !ok {
		t.Fatal(notes)
	}
	_, notes, ok := k.runWithInput("", "-yes -name shop -set key -file "+file)
	if got, _ := k.readSecret("shop"); !ok || !cmp.Equal(got, map[string]any{"key_id": "id-of-a-key", "key_secret": seed}) || !strings.Contains(notes, "- token (sha256 ") {
		t.Errorf("%v: %s", got, notes)
	}
	testbed.Check(os.Chmod(file, 0o644))
	if _, notes, ok := k.runWithInput("", "-yes -name shop -set key -file "+file); ok || !strings.Contains(notes, "chmod 600") {
		t.Errorf("a file that others may read: %s", notes)
	}
	for value, says := range map[string]string{"id " + half: "neither the base64", "{" + half: "not the JSON of a CDP key", half: "the key's id, a space"} {
		if _, notes, ok := k.runWithInput(value, "-yes -name shop -set key"); ok || !strings.Contains(notes, says) || strings.Contains(notes, half) {
			t.Errorf("%s: %s", value, notes)
		}
	}
	if _, notes, ok := k.runWithInput("", "-yes -name shop -unset key"); ok || !strings.Contains(notes, "would be empty") {
		t.Errorf("a secret of nothing: %s", notes)
	}
	for _, step := range []string{"-set rpc_urls", "-unset key"} {
		if _, notes, ok := k.runWithInput("https://node.example", "-yes -name shop "+step); !ok {
			t.Errorf("%s: %s", step, notes)
		}
	}
	if got, _ := k.readSecret("shop"); !cmp.Equal(got, map[string]any{"rpc_urls": []any{"https://node.example"}}) {
		t.Errorf("the secret holds %v", got)
	}
	for name, says := range map[string]string{"arn:aws:secretsmanager:us-east-1:111122223333:secret:x-AbCdEf": "no secret with that ARN", "shop-AbCdEf": "a hyphen and six characters", "a b": "at most 500"} {
		cmd := testbed.Command(t, testbed.Program(t, "./infra/local/secret"), "-yes", "-name", name, "-set", "token")
		cmd.Env, cmd.Stdin = testbed.Environment(k.env), strings.NewReader("a-token")
		if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), says) {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
}

// TestSecretOfTwoPeople checks a change that somebody else makes between the read and the
// write. That change must be kept, and the second writer must be told. If nobody interferes and
// only the reply to the write is lost, the command must report success. At the end, no version
// may still have the temporary stage with which it was written.
func TestSecretOfTwoPeople(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	if _, notes, ok := k.runWithInput("a-token", "-yes -name shop -set token"); !ok {
		t.Fatal(notes)
	}
	_, arn := k.readSecret("shop")
	between := &intruder{k: k, arn: arn, foreignValue: `{"token":"of-somebody-else"}`}
	direct := k.env["AWS_ENDPOINT_URL_SECRETS_MANAGER"]
	k.env["AWS_ENDPOINT_URL_SECRETS_MANAGER"] = testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, direct), Do: between.handle})
	_, notes, ok := k.runWithInput("https://node.example", "-yes -name shop -set rpc_urls")
	if ok || !strings.Contains(notes, "nothing was changed: somebody else has changed the secret meanwhile. Run the same command again") {
		t.Errorf("changed: %t, %s", ok, notes)
	}
	if got, _ := k.readSecret("shop"); !cmp.Equal(got, map[string]any{"token": "of-somebody-else"}) {
		t.Errorf("the secret holds %v", got)
	}
	if want := []string{"GetSecretValue", "PutSecretValue", "UpdateSecretVersionStage", "GetSecretValue", "UpdateSecretVersionStage"}; !slices.Equal(between.targets, want) {
		t.Errorf("asked for %q, want %q", between.targets, want)
	}
	between.foreignValue = ""
	if _, notes, ok := k.runWithInput("https://node.example", "-yes -name shop -set rpc_urls"); !ok {
		t.Errorf("again: %s", notes)
	}
	between.dropReply = true
	if _, notes, ok := k.runWithInput("https://other.example", "-yes -name shop -set rpc_urls"); !ok {
		t.Errorf("with a reply that is lost: %s", notes)
	}
	want := map[string]any{"token": "of-somebody-else", "rpc_urls": []any{"https://other.example"}}
	if got, _ := k.readSecret("shop"); !cmp.Equal(got, want) {
		t.Errorf("the secret holds (-want +got):\n%s", cmp.Diff(want, got))
	}
	versions := testbed.Must(k.api.ListSecretVersionIds(t.Context(), &secretsmanager.ListSecretVersionIdsInput{SecretId: &arn}))
	for _, v := range versions.Versions {
		if slices.ContainsFunc(v.VersionStages, func(stage string) bool { return strings.HasPrefix(stage, "pending-") }) {
			t.Errorf("version %s is still called %q", *v.VersionId, v.VersionStages)
		}
	}
}

// intruder is a relay between the program and Secrets Manager. It can play another person who
// changes the secret, or lose a reply.
type intruder struct {
	k            *secretProgram
	arn          string
	targets      []string // the actions that were requested
	foreignValue string   // the value that somebody else writes before the program's version becomes current
	dropReply    bool     // drop the reply to the request that makes the program's version current
}

func (i *intruder) handle(r *testbed.Relayed) {
	_, target, _ := strings.Cut(r.Request.Header.Get("X-Amz-Target"), ".")
	i.targets = append(i.targets, target)
	if target != "UpdateSecretVersionStage" || !strings.Contains(string(r.Sent), `"AWSCURRENT"`) {
		r.Pass()
		return
	}
	if i.foreignValue != "" {
		testbed.Must(i.k.api.PutSecretValue(i.k.t.Context(), &secretsmanager.PutSecretValueInput{SecretId: &i.arn, SecretString: &i.foreignValue}))
	}
	if !i.dropReply {
		r.Pass()
		return
	}
	r.ResponseWriter = discardingWriter{r.ResponseWriter, http.Header{}} // AWS acts on the request, but its reply is lost
	r.Pass()
	panic(http.ErrAbortHandler)
}

// discardingWriter is a ResponseWriter that discards the reply.
type discardingWriter struct {
	http.ResponseWriter
	header http.Header
}

func (d discardingWriter) Header() http.Header         { return d.header }
func (d discardingWriter) WriteHeader(int)             {}
func (d discardingWriter) Write(p []byte) (int, error) { return len(p), nil }
