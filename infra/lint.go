package main

import (
	"fmt"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/cloudformationinclude"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
)

// exception is a rule of cdk-nag that the stack does not keep in one respect, and why.
type exception struct{ rule, of, reason string }

// exceptions are all of them. TestCDKNag fails on one that is not needed, and on
// whatever else cdk-nag finds.
func exceptions() []exception {
	return []exception{{
		rule: "AwsSolutions-IAM4", of: "Policy::arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole",
		reason: "the transform gives it to every function; it allows to write logs and nothing else, and a role of our own would restate what each function may do",
	}, {
		rule: "AwsSolutions-IAM4", of: "Policy::arn:aws:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda",
		reason: "the transform gives it to CodeDeploy, which moves the aliases of a release by it; AWS keeps it up to date",
	}}
}

// lint has cdk-nag check a template, as CloudFormation sees it after the serverless
// transform, against its AwsSolutions rules. Its report is a file of out.
func lint(path, out string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("template to check: %w", err)
	}
	app := awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false), TreeMetadata: jsii.Bool(false), Outdir: &out})
	// The CDK app's template has what its synthesizer adds already.
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
	return nil
}
