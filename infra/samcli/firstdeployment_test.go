package samcli

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// firstDeployment matches the line of README that builds and deploys the service, and captures
// the "sam deploy" command. TestBuild checks the build.
var firstDeployment = regexp.MustCompile(`(?m)^    make sam-build && sam (deploy .+)$`)

// TestFirstDeployment runs the "sam deploy" command of README's first deployment, against an
// emulator of AWS and with standard input closed. The SAM CLI must ask nothing, and must
// execute a change set with the parameters PayTo and FacilitatorUrl. The execution then fails,
// because the emulator does not have the SAM transform. Then the test runs the command without
// "--no-confirm-changeset". Now the CLI must ask, which shows that the test notices a question.
func TestFirstDeployment(t *testing.T) {
	t.Parallel()
	line := firstDeployment.FindSubmatch(testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "README.md"))))
	if line == nil {
		t.Fatal("README no longer has the first deployment where this test looks for it")
	}
	const facilitator = "https://facilitator.example"
	typed := strings.NewReplacer("0x…", boot.LocalPayTo, "https://…", facilitator).Replace(string(line[1]))
	folder := t.TempDir()
	for _, name := range []string{"template.yaml", "samconfig.toml"} {
		testbed.Check(os.WriteFile(filepath.Join(folder, name), testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), name))), 0o600))
	}
	testbed.Check(os.CopyFS(filepath.Join(folder, "functions"), os.DirFS(filepath.Join(testbed.Root(), "functions"))))
	aws := emulateDeployments(t)
	deploy := func(typed string) string {
		cmd := deployed.Python(t, append([]string{"-m", "samcli"}, strings.Fields(typed)...)...)
		cmd.Dir = folder
		cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL="+aws, "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "NO_PROXY=localhost", "no_proxy=localhost")
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("the emulator knows the transform now: look at what it deploys\n%s", out)
		}
		return string(out)
	}
	said := deploy(typed)
	if question := regexp.MustCompile(`(?i)\[y/n\]|Aborted|Parameter \w+ \[`).FindString(said); question != "" {
		t.Errorf("%s asks: %q\n%s", typed, question, said)
	}
	values := fmt.Sprintf(`{"PayTo": "%s", "FacilitatorUrl": "%s"}`, boot.LocalPayTo, facilitator)
	for _, want := range []string{values, "Changeset created successfully", "when calling the ExecuteChangeSet operation"} {
		if !strings.Contains(said, want) {
			t.Errorf("%s does not say %q:\n%s", typed, want, said)
		}
	}
	if said = deploy(strings.Replace(typed, "--no-confirm-changeset ", "", 1)); !strings.Contains(said, "[y/N]") || strings.Contains(said, "ExecuteChangeSet") {
		t.Errorf("a question that is not answered is not seen:\n%s", said)
	}
}

// emulateDeployments starts an emulator of AWS, and creates the stack that has the SAM CLI's
// bucket. The CLI could create this stack, but then the stack would have no outputs in the
// emulator.
func emulateDeployments(t *testing.T) (endpoint string) {
	t.Helper()
	moto := deployed.Python(t, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
	// The emulator looks for the bucket in the path only if the host name is localhost.
	endpoint = strings.Replace(programs.StartPeer(t, moto, " Running on ").URL, "127.0.0.1", "localhost", 1)
	const bucket = `{"Resources":{"Code":{"Type":"AWS::S3::Bucket","Properties":{"BucketName":"code-of-functions"}}},
		"Outputs":{"SourceBucket":{"Value":"code-of-functions"},"Version":{"Value":"1"}}}`
	form := url.Values{
		"Action": {"CreateStack"}, "Version": {"2010-05-15"}, "StackName": {"aws-sam-cli-managed-default"}, "TemplateBody": {bucket},
		"Tags.member.1.Key": {"ManagedStackSource"}, "Tags.member.1.Value": {"AwsSamCli"},
	}
	r := testbed.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=local/20261120/us-east-1/cloudformation/aws4_request, SignedHeaders=host, Signature=0")
	reply := testbed.Must(http.DefaultClient.Do(r))
	testbed.Check(reply.Body.Close())
	if reply.StatusCode != http.StatusOK {
		t.Fatalf("the emulator answers %s", reply.Status)
	}
	return endpoint
}
