// Command infra is the CDK app for production. It includes ../template.yaml, which
// is the whole application, and adds what is repeated for each operation or
// belongs to production alone: alarms, a dashboard, a domain, log retention, a
// budget, prebuilt code.
//
// It does not repeat any function. It synthesizes without credentials and without a
// network; the CDK CLI runs it by cdk.json. RUNBOOK.md says how to deploy it, and
// what each alarm means.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/pkg/boot"
)

func main() {
	out := flag.String("out", "", "synthesize with example values and without code into this directory, for tests and inspection")
	check := flag.String("lint", "", "check this template, which the serverless transform made, by cdk-nag, and write its report into -out")
	flag.Parse()
	if err := run(*out, *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run synthesizes the stack of the CDK context to where the CDK CLI says, or the
// example to out. With a template to check it does nothing else.
func run(out, check string) error {
	defer jsii.Close()
	if check != "" {
		return lint(check, out)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	props := awscdk.AppProps{AnalyticsReporting: jsii.Bool(false), TreeMetadata: jsii.Bool(false)}
	if out != "" {
		props.Context, props.Outdir = example(), &out
	}
	app := awscdk.NewApp(&props)
	s, err := readSettings(root, app.Node().TryGetContext)
	if err != nil {
		return err
	}
	NewStack(app, s)
	app.Synth(nil)
	return nil
}

// example is a context with which the app adds everything that it can add, and
// needs no built functions.
func example() *map[string]any {
	return &map[string]any{
		"PayTo": boot.LocalPayTo, "FacilitatorUrl": "https://facilitator.example",
		ctxNodes: nodesParameter, ctxAssets: assetsNone, ctxDomain: "api.hostfacts.example", ctxEmail: "ops@hostfacts.example", ctxTickets: "tickets@hostfacts.example",
		ctxCertificate:         "arn:aws:acm:us-east-1:111122223333:certificate/00000000-0000-4000-8000-000000000000",
		"FacilitatorSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:facilitator-AbCdEf",

		"FacilitatorFallbackUrl":       "https://fallback.example",
		"FacilitatorFallbackSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:fallback-GhIjKl",
	}
}

// moduleRoot finds the module from the working directory upwards: the CDK CLI
// runs the app in infra, "go run ./infra" above it.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := start; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, templateName)); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New("no " + templateName + " above " + start)
		}
	}
}
