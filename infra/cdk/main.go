// Command cdk is the CDK app for production. It includes ../../template.yaml, which is the
// whole application, and adds what repeats for each operation or is only needed in production:
// alarms, a dashboard, a domain, log retention, a budget and prebuilt code.
//
// It does not define any function again, and synthesizes without credentials and without a
// network. The CDK CLI runs it with the settings in cdk.json in this folder. ../RUNBOOK.md
// describes how to deploy it, and what each alarm means.
//
// It is a separate module because the CDK is large: a program that imports the main module
// does not depend on it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run synthesizes the stack from the CDK context into the folder that the CDK CLI names.
func run() error {
	defer jsii.Close()
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	app := awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false), TreeMetadata: jsii.Bool(false)})
	s, err := loadSettings(root, app.Node().TryGetContext, os.Stderr)
	if err != nil {
		return err
	}
	NewStack(app, s)
	app.Synth(nil)
	return nil
}
