package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
)

// TestByCDK deploys a stack with the CDK app. Such a stack has only the hidden parameters,
// because the app writes the other values into the template. Nevertheless the program must
// compare such a stack with its stack file, deploy it and roll it back. The CDK app is the real
// one. The CDK's command line is simulated, because it would upload assets to an account.
func TestByCDK(t *testing.T) {
	t.Parallel()
	testbed.Find(t, "Node for the CDK", "node")
	o := newOperator(t, simulatedBuild)
	o.simulateNpx()
	o.replaceInStackFile(`toolchain = "sam"`, `toolchain = "cdk"`, "[hostfacts.cdk]\n", "[hostfacts.cdk]\nassets = \"none\"\n", `nodes = "secret"`, `nodes = "parameter"`,
		`domain = "api.example.com"`, "", `certificateArn = "arn:aws:acm:…"`, "")
	first := o.commit("by the CDK app")

	o.replaceInStackFile("budgetUsd", "budgetUSD")
	o.wantFailure(deployArguments, "[hostfacts.cdk] has what is no setting of the CDK app: budgetUSD")
	o.replaceInStackFile("budgetUSD", "budgetUsd")
	o.wantSuccess(deployArguments, "The stack shop-stack does not exist in us-east-1: this creates it.", "selling: yes, 8 prices")
	if is := o.currentValue(outputCommit); is != first {
		t.Errorf("the commit on record is %s, want %s", is, first)
	}
	if is := o.currentValue("PayTo"); is != "" {
		t.Errorf("the stack has a parameter PayTo, so that this tests nothing: %s", is)
	}

	// This stack does not have the parameters that are changed here. So the program must read
	// their current values from the deployed template.
	o.replaceInStackFile(testbed.Account(1), testbed.Account(2), `LogLevel = "info"`, `LogLevel = "warn"`, `DefaultEndpoint = "yes"`, `DefaultEndpoint = "no"`, `Release = "Canary10Percent10Minutes"`, `Release = "AllAtOnce"`,
		`LedgerTableName = ""`, `LedgerTableName = "shop-copy"`)
	notes := o.wantFailure(deployArguments, "another payee would be paid: from "+testbed.Account(1), "to shop-copy while something is sold")
	for _, row := range []string{"PayTo", "LogLevel", "DefaultEndpoint", "Release", "LedgerTableName"} {
		if strings.Count(notes, "\n"+row+"  ") != 1 {
			t.Errorf("%s is not among the differences:\n%s", row, notes)
		}
	}
	if strings.Contains(notes, unknownValue) || strings.Contains(notes, "Selling  ") {
		t.Errorf("what is as it was is among the differences, or something is not known:\n%s", notes)
	}

	// A second release stops the sales and replaces the payee. Its CDK app has one more
	// setting. Then the stack is rolled back to the first release. The new payee must stay, and
	// the sales must stay stopped. The first release's CDK app does not know the new setting,
	// so the rollback leaves the setting out.
	o.replaceInStackFile(`LedgerTableName = "shop-copy"`, `LedgerTableName = ""`, `Selling = "yes"`, `Selling = "no"`)
	o.replaceIn("infra/cdk/settings.go", "		reserve:     c.boolean(ctxReserve, true),\n", "		reserve:     c.text(\"motto\", \"\") != \"\" || c.boolean(ctxReserve, true),\n")
	o.replaceInStackFile("budgetUsd = 80", "budgetUsd = 80\nmotto = \"never twice\"")
	second := o.commit("another payee")
	o.copyAllowLine(o.wantFailure(deployArguments))
	o.wantSuccess(deployArguments, "payee "+testbed.Account(2), "selling: no")
	o.wantSuccess([]string{"rollback", "-yes", "shop"}, "motto is no setting of this release, and is left out", "payee "+testbed.Account(2), "selling: no", "code "+shortCommit(first))
	if o.currentValue(outputCommit) != first || second == first {
		t.Errorf("%s", o.stackText())
	}
	o.checkPermissions()

	testbed.Check(os.Rename(filepath.Join(o.root, "infra", "deploy"), filepath.Join(t.TempDir(), "away")))
	old := o.commit("as it was before the files of stacks")
	o.wantFailure([]string{"rollback", "-yes", "-to", old, "shop"}, "the release of "+shortCommit(old)+" is older than stack files")
}

// checkPermissions checks that the runbook names the version of the CDK's command line, and
// exactly those CloudFormation actions that the program itself has called.
func (o *operator) checkPermissions() {
	o.t.Helper()
	o.account.mu.Lock()
	defer o.account.mu.Unlock()
	text := strings.Join(strings.Fields(o.read("infra/RUNBOOK.md")), " ")
	_, passage, found := strings.Cut(text, "In addition to the toolchain's permissions the command")
	passage, _, ends := strings.Cut(passage, " and, on the table,")
	if !found || !ends {
		o.t.Fatal("the runbook no longer says what make deploy needs where this test looks for it")
	}
	var printed []string
	for _, m := range regexp.MustCompile("`(?:cloudformation:)?([A-Z][A-Za-z]+)`").FindAllStringSubmatch(passage, -1) {
		printed = append(printed, m[1])
	}
	if !strings.Contains(text, "`npx "+cdkCLI+" bootstrap`") {
		o.t.Errorf("the runbook does not say how %s makes ready what it deploys to", cdkCLI)
	}
	slices.Sort(printed)
	if asked := names(o.account.calledActions); !slices.Equal(asked, printed) {
		o.t.Errorf("the program asks for %v, and the runbook names %v", asked, printed)
	}
}

// simulateNpx adds a simulated npx to the operator's tools.
func (o *operator) simulateNpx() {
	o.t.Helper()
	bin := o.t.TempDir()
	python := deployed.Python(o.t).Path
	program := filepath.Join(testbed.Root(), "infra", "deploy", "testdata", "npx.py")
	script := "#!/bin/sh\nexec '" + python + "' '" + program + "' \"$@\"\n"
	testbed.Check(os.WriteFile(filepath.Join(bin, "npx"), []byte(script), 0o700))
	for i, variable := range o.env {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			o.env[i] = "PATH=" + bin + ":" + path
		}
	}
	o.env = append(o.env, "HIDDEN_RpcUrl=https://node.example", "MAKEFLAGS=FUNCTIONS=ping")
	o.account.environment = map[string]string{"RPC_URL": "none"}
}
