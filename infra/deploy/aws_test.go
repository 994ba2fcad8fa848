package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// account simulates an AWS account. An emulator provides S3, DynamoDB and one stack, to which
// the SAM CLI's bucket belongs. The emulator does not support the serverless transform, so
// account itself simulates every other stack. When account refuses a change set or changes the
// state of a stack, it follows the reference of CloudFormation's query API. A simulated stack
// runs the built functions, with the environment from its template and its parameters.
type account struct {
	t        *testing.T
	endpoint string
	emulator cloud.Dynamo
	// environment holds variables that the functions get in addition to those in the template.
	environment map[string]string
	versions    int // how many versions of the functions were published; each deployment adds one

	mu            sync.Mutex
	stacks        map[string]*stack
	sets          map[string]changeSet // by name
	calledActions map[string]bool      // the CloudFormation actions that the program itself has called
	// If isLagging is set, a deployment is reported as done, but the functions of the previous
	// deployment still answer.
	isLagging bool
	// afterBuild is called once, when the next build has ended. It may be nil.
	afterBuild func(s *stack)
}

// stack is a simulated stack.
type stack struct {
	id, status, template string
	parameters           map[string]string
	createdAt, updatedAt time.Time
	outputs              map[string]string
	url                  string // the URL at which the stack answers
	handler              http.Handler
}

// changeSet is a deployment that has not been executed yet.
type changeSet struct {
	stack, template string
	parameters      map[string]string
	failure         string // why the deployment cannot be executed; empty if it can
}

// newAccount starts an account with the bucket of the SAM CLI in it.
func newAccount(t *testing.T) *account {
	t.Helper()
	moto := deployed.Python(t, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
	emulator := programs.StartPeer(t, moto, " Running on ").URL
	a := &account{t: t, emulator: cloud.Dynamo{URL: emulator}, stacks: map[string]*stack{}, sets: map[string]changeSet{}, calledActions: map[string]bool{}}
	behind := testbed.Must(url.Parse(emulator))
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(behind)
		r.Out.Host = r.In.Host
	}}
	served := testbed.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if failed := recover(); failed != nil && failed != http.ErrAbortHandler {
				t.Errorf("the account fails: %v", failed)
				panic(http.ErrAbortHandler)
			}
		}()
		if r.URL.Path == pathBuilt {
			a.buildEnded()
			return
		}
		body := testbed.Must(io.ReadAll(r.Body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		form, err := url.ParseQuery(string(body))
		if err != nil || form.Get("Version") != "2010-05-15" || form.Get("StackName") == "aws-sam-cli-managed-default" {
			proxy.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.UserAgent(), "aws-sdk-go") { // sent by the program, not by a toolchain
			a.mu.Lock()
			a.calledActions[form.Get("Action")] = true
			a.mu.Unlock()
		}
		a.answer(w, form)
	}))
	// The emulator looks for the bucket in the path only if the host name is localhost.
	a.endpoint = strings.Replace(served, "127.0.0.1", "localhost", 1)
	const bucket = `{"Resources":{"Code":{"Type":"AWS::S3::Bucket","Properties":{"BucketName":"code-of-functions"}}},
		"Outputs":{"SourceBucket":{"Value":"code-of-functions"},"Version":{"Value":"1"}}}`
	a.post(url.Values{
		"Action": {"CreateStack"}, "Version": {"2010-05-15"}, "StackName": {"aws-sam-cli-managed-default"}, "TemplateBody": {bucket},
		"Tags.member.1.Key": {"ManagedStackSource"}, "Tags.member.1.Value": {"AwsSamCli"},
	})
	return a
}

func (a *account) post(form url.Values) {
	a.t.Helper()
	r := testbed.Must(http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.endpoint, strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", authorization("cloudformation"))
	reply := testbed.Must(http.DefaultClient.Do(r))
	testbed.Check(reply.Body.Close())
	if reply.StatusCode != http.StatusOK {
		a.t.Fatalf("the emulator answers %s", reply.Status)
	}
}

// pathBuilt is the path that a simulated build requests when it has ended.
const pathBuilt = "/built"

// buildEnded handles the end of a build: it calls afterBuild.
func (a *account) buildEnded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.afterBuild != nil {
		a.afterBuild(a.stacks["shop-stack"])
		a.afterBuild = nil
	}
}

// setLagging sets the field isLagging.
func (a *account) setLagging(lags bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isLagging = lags
}

// authorization returns a signature for a service. The emulator does not check it.
func authorization(service string) string {
	return "AWS4-HMAC-SHA256 Credential=local/20261120/us-east-1/" + service + "/aws4_request, SignedHeaders=host, Signature=0"
}

// variables returns the environment variables of a program that uses the account.
func (a *account) variables() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + a.endpoint, "AWS_ACCESS_KEY_ID=" + cloud.DynamoKeyID, "AWS_SECRET_ACCESS_KEY=" + cloud.DynamoSecret,
		"AWS_EC2_METADATA_DISABLED=true", "NO_PROXY=localhost,127.0.0.1", "no_proxy=localhost,127.0.0.1",
	}
}

// refusal is an error of CloudFormation's API.
type refusal struct{ code, message string }

func validationError(format string, values ...any) *refusal {
	return &refusal{"ValidationError", fmt.Sprintf(format, values...)}
}

// answer answers a request to CloudFormation.
func (a *account) answer(w http.ResponseWriter, form url.Values) {
	a.mu.Lock()
	defer a.mu.Unlock()
	actions := map[string]func(url.Values) (string, *refusal){
		"DescribeStacks": a.describeStacks, "GetTemplateSummary": a.summary, "GetTemplate": a.template, "CreateChangeSet": a.createChangeSet,
		"DescribeChangeSet": a.describeChangeSet, "ExecuteChangeSet": a.executeChangeSet, "DescribeStackEvents": a.events,
	}
	name := form.Get("Action")
	action, known := actions[name]
	if !known {
		a.t.Errorf("CloudFormation is asked for %s, which is not played", name)
		action = func(url.Values) (string, *refusal) { return "", &refusal{"InvalidAction", name} }
	}
	result, refused := action(form)
	w.Header().Set("Content-Type", "text/xml")
	const ns = "http://cloudformation.amazonaws.com/doc/2010-05-15/"
	if refused != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `<ErrorResponse xmlns="%s"><Error><Type>Sender</Type>%s%s</Error><RequestId>r</RequestId></ErrorResponse>`,
			ns, element("Code", refused.code), element("Message", refused.message))
		return
	}
	fmt.Fprintf(w, `<%sResponse xmlns="%s"><%sResult>%s</%sResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></%sResponse>`,
		name, ns, name, result, name, name)
}

// element returns an XML element with a text.
func element(name, text string) string {
	var b strings.Builder
	testbed.Check(xml.EscapeText(&b, []byte(text)))
	return "<" + name + ">" + b.String() + "</" + name + ">"
}

func timeElement(name string, at time.Time) string {
	return element(name, at.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// pairs returns an XML list of names and values.
func pairs(list, name, value string, of map[string]string) string {
	var b strings.Builder
	for _, key := range names(of) {
		b.WriteString("<member>" + element(name, key) + element(value, of[key]) + "</member>")
	}
	return "<" + list + ">" + b.String() + "</" + list + ">"
}

func (a *account) find(name string) (*stack, *refusal) {
	for known, s := range a.stacks {
		if known == name || s.id == name {
			return s, nil
		}
	}
	return nil, validationError("Stack with id %s does not exist", name)
}

func (a *account) describeStacks(form url.Values) (string, *refusal) {
	s, refused := a.find(form.Get("StackName"))
	if refused != nil {
		return "", refused
	}
	shown := map[string]string{}
	declared := a.read(s.template)
	for name, value := range s.parameters {
		if declared.Parameters[name].NoEcho {
			value = "****"
		}
		shown[name] = value
	}
	return "<Stacks><member>" + element("StackId", s.id) + element("StackName", form.Get("StackName")) + element("StackStatus", s.status) +
		timeElement("CreationTime", s.createdAt) + timeElement("LastUpdatedTime", s.updatedAt) +
		pairs("Parameters", "ParameterKey", "ParameterValue", shown) + pairs("Outputs", "OutputKey", "OutputValue", s.outputs) + "</member></Stacks>", nil
}

func (a *account) summary(form url.Values) (string, *refusal) {
	s, refused := a.find(form.Get("StackName"))
	if refused != nil {
		return "", refused
	}
	var b strings.Builder
	for _, name := range names(a.read(s.template).Parameters) {
		b.WriteString("<member>" + element("ParameterKey", name) + "</member>")
	}
	return "<Parameters>" + b.String() + "</Parameters>", nil
}

func (a *account) template(form url.Values) (string, *refusal) {
	s, refused := a.find(form.Get("StackName"))
	if refused != nil {
		return "", refused
	}
	return element("TemplateBody", s.template), nil
}

// read parses a template that a toolchain has sent. Toolchains write intrinsic functions in
// the long form (Fn::…), so read converts them to the short form (!…), which package sam
// reads.
func (a *account) read(text string) *sam.Template {
	var root yaml.Node
	testbed.Check(yaml.Unmarshal([]byte(text), &root))
	shortenIntrinsics(&root)
	path := filepath.Join(a.t.TempDir(), "template.yaml")
	testbed.Check(os.WriteFile(path, testbed.Must(yaml.Marshal(&root)), 0o600))
	t := testbed.Must(sam.Read(path))
	delete(t.Rules, "CheckBootstrapVersion") // the CDK adds this rule, which concerns no parameter of template.yaml
	return t
}

// shortenIntrinsics converts the intrinsic functions in a node of a template to their short
// form.
func shortenIntrinsics(n *yaml.Node) {
	for _, child := range n.Content {
		shortenIntrinsics(child)
	}
	const pair = 2
	if n.Kind != yaml.MappingNode || len(n.Content) != pair {
		return
	}
	name, function := strings.CutPrefix(n.Content[0].Value, "Fn::")
	if function || name == "Ref" {
		value := *n.Content[1]
		value.Tag = "!" + name
		*n = value
	}
}

// inReview is the status of a stack that has only a change set so far.
const inReview = "REVIEW_IN_PROGRESS"

// newStack returns a new stack. It has a URL, but no template yet.
func (a *account) newStack(name string) *stack {
	s := &stack{id: stackARN(name), status: inReview, createdAt: time.Now(), updatedAt: time.Now()}
	s.url = testbed.Serve(a.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		answers := s.handler
		a.mu.Unlock()
		answers.ServeHTTP(w, r)
	}))
	return s
}

// ownTable returns the name of the table that a stack creates.
func ownTable(stack string) string { return stack + "-Ledger-1A2B3C4D5E6F7" }

// literalOutputs returns those outputs of a template whose values are literals.
func literalOutputs(template string) map[string]string {
	var d struct {
		Outputs map[string]struct {
			Value yaml.Node `yaml:"Value"`
		} `yaml:"Outputs"`
	}
	testbed.Check(yaml.Unmarshal([]byte(template), &d))
	values := map[string]string{}
	for name, o := range d.Outputs {
		if o.Value.Kind == yaml.ScalarNode && !(strings.HasPrefix(o.Value.Tag, "!") && !strings.HasPrefix(o.Value.Tag, "!!")) {
			values[name] = o.Value.Value
		}
	}
	return values
}

// runFunctions runs the functions of a template with the given values for its parameters. It
// returns the handler through which the functions are reached.
func (a *account) runFunctions(stack string, t *sam.Template, parameters map[string]string) http.Handler {
	values := map[string]string{"AWS::StackName": stack, "Ledger": ownTable(stack)}
	for name, value := range parameters {
		values[name] = value
	}
	functions := testbed.Must(t.Functions(values))
	for i, f := range functions {
		for slug := range deployed.Routes() {
			if sam.LogicalID(slug) == f.Name { // in a deployed template, CodeUri names an object in the bucket, and not the slug
				functions[i].Slug = slug
			}
		}
	}
	environment := map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": a.emulator.URL, "AWS_REGION": cloud.DynamoRegion, "AWS_ACCESS_KEY_ID": cloud.DynamoKeyID, "AWS_SECRET_ACCESS_KEY": cloud.DynamoSecret,
	}
	a.versions++
	environment["AWS_LAMBDA_FUNCTION_VERSION"] = strconv.Itoa(a.versions)
	for name, value := range a.environment {
		environment[name] = value
	}
	h := cloud.Deployment{Functions: testbed.Functions(a.t), FunctionList: functions, Environment: environment}.Open(a.t)
	return httputil.NewSingleHostReverseProxy(testbed.Must(url.Parse(h.URL)))
}
