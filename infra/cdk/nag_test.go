package main

import (
	"encoding/csv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/cloudformationinclude"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
)

// exception is a rule of cdk-nag that the stack breaks, the part of the stack that breaks the
// rule, and the reason why it may.
type exception struct{ rule, of, reason string }

// exceptions returns all exceptions. TestCDKNag fails if an exception is not needed, and on
// any other finding of cdk-nag.
func exceptions() []exception {
	// byForm returns an exception for a wildcard in a resource's name. AWS completes the name,
	// or a person chooses it, so a policy can state only the form of the name.
	byForm := func(of, reason string) exception {
		return exception{rule: "AwsSolutions-IAM5", of: "Resource::" + of, reason: reason}
	}
	const (
		copies = "make restore makes tables whose names begin with the ledger's, and no other table's does"
		here   = "<AWS::Region>:<AWS::AccountId>:"
	)
	return []exception{
		byForm("<Ledger.Arn>-copy*", copies), byForm("<Ledger.Arn>-copy*/index/open", copies),
		byForm("<Ledger.Arn>-drill*", copies), byForm("<Ledger.Arn>-drill*/index/open", copies),
		byForm("arn:<AWS::Partition>:cloudformation:"+here+"stack/"+deployed.Stack+"/*", "AWS puts an identifier behind the name of a stack"),
		byForm("arn:<AWS::Partition>:cloudwatch:"+here+"alarm:"+deployed.Stack+"-*", "all alarms of the stack, whose names begin with its own, are its operators' to try"),
		byForm("arn:<AWS::Partition>:secretsmanager:"+here+"secret:"+deployed.Stack+"-*", "a secret is made before a deployment names it, and AWS puts six characters behind its name"),
		{
			rule: "AwsSolutions-IAM4", of: "Policy::arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole",
			reason: "the transform gives it to every function; it allows to write logs and nothing else, and a role of our own would restate what each function may do",
		}, {
			rule: "AwsSolutions-IAM4", of: "Policy::arn:aws:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda",
			reason: "the transform gives it to CodeDeploy, which moves the aliases of a release by it; AWS keeps it up to date",
		}}
}

// lint checks a transformed template against the AwsSolutions rules of cdk-nag. The second
// argument is the folder for the report.
func lint(path, out string) {
	app := awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false), TreeMetadata: jsii.Bool(false), Outdir: &out})
	// This synthesizer adds nothing, because the CDK app's template already has what a
	// synthesizer adds.
	stack := awscdk.NewStack(app, jsii.String("transformed"), &awscdk.StackProps{Synthesizer: awscdk.NewBootstraplessSynthesizer(nil)})
	cloudformationinclude.NewCfnInclude(stack, jsii.String("Template"), &cloudformationinclude.CfnIncludeProps{TemplateFile: &path})
	formats := []cdknag.NagReportFormat{cdknag.NagReportFormat_CSV}
	awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{
		Verbose: jsii.Bool(true), Reports: jsii.Bool(true), ReportFormats: &formats,
	}), nil)
	var suppressions []*cdknag.NagPackSuppression
	for _, e := range exceptions() {
		suppressions = append(suppressions, &cdknag.NagPackSuppression{Id: &e.rule, Reason: &e.reason, AppliesTo: &[]any{e.of}})
	}
	cdknag.NagSuppressions_AddStackSuppressions(stack, &suppressions, jsii.Bool(true))
	app.Synth(nil)
	jsii.Close()
}

type finding struct{ rule, resource, compliance, reason string }

// nag checks a transformed template with cdk-nag and returns the findings.
func nag(t *testing.T, path string) []finding {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs Node for the CDK: node is not in PATH")
	}
	out := t.TempDir()
	// cdk-nag runs in another process. When that process ends, the CDK's library has a data
	// race. So the race detector is set not to change the exit code of that process.
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "NAG_TEMPLATE="+path, "NAG_REPORT="+out, "GORACE=exitcode=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cdk-nag: %v\n%s", err, said)
	}
	found, err := filepath.Glob(filepath.Join(out, "*NagReport.csv"))
	if err != nil || len(found) != 1 {
		t.Fatalf("reports %v, %v", found, err)
	}
	f := must(os.Open(found[0]))(t)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%d lines in the report: %v", len(rows), err)
	}
	if want := []string{"Rule ID", "Resource ID", "Compliance", "Exception Reason"}; !slices.Equal(rows[0][:4], want) {
		t.Fatalf("columns %q", rows[0])
	}
	var all []finding
	for _, row := range rows[1:] {
		all = append(all, finding{row[0], row[1], row[2], row[3]})
	}
	return all
}

// TestCDKNag checks that the stack keeps the AwsSolutions rules of cdk-nag except for the
// exceptions above, each of which must be needed. Then the test makes some changes to the
// template that break one rule each. cdk-nag must find them.
func TestCDKNag(t *testing.T) {
	t.Parallel()
	changes := map[string][2]string{
		"AwsSolutions-DDB3": {`"PointInTimeRecoveryEnabled":true`, `"PointInTimeRecoveryEnabled":false`},
		"AwsSolutions-IAM5": {`"dynamodb:UpdateItem"`, `"dynamodb:*"`},
		"AwsSolutions-SNS3": {`"aws:SecureTransport":"false"`, `"aws:SecureTransport":"true"`},
	}
	path := saveTemplate(t, transformTemplate(t, saveTemplate(t, exampleTemplate(t))))
	used := map[string]int{}
	for _, f := range nag(t, path) {
		switch f.compliance {
		case "Compliant":
		case "Suppressed":
			used[f.reason[:strings.Index(f.reason, "]")+1]]++
		default:
			t.Errorf("%s is %s: %s", f.resource, f.compliance, f.rule)
		}
	}
	const askForTheStack = 3 // the number of operators' roles that need the exception about the stack's name
	want := append(slices.Repeat([]int{1}, len(exceptions())-2), askForTheStack, len(functionSlugs()))
	if !slices.Equal(slices.Sorted(maps.Values(used)), want) {
		t.Errorf("exceptions %v, want %v", used, want)
	}
	for _, change := range changes {
		path = changeTemplate(t, path, change[0], change[1])
	}
	all := nag(t, path)
	for what, change := range changes {
		if !slices.ContainsFunc(all, func(f finding) bool { return f.rule == what && f.compliance == "Non-Compliant" }) {
			t.Errorf("%s is not found with %s", what, change[1])
		}
	}
}
