package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// TestDeploy creates a stack with the SAM CLI, then changes a parameter, and then the code.
// The result of each deployment must be verified, and the stack's outputs must name the
// deployed commit and the commit before it. A deployment must be refused before anything is
// built if nobody confirms it, if a code file is in no commit, or if the stack's file has
// faults.
func TestDeploy(t *testing.T) {
	t.Parallel()
	o := newOperator(t, simulatedBuild)
	first := o.git("rev-parse", "HEAD")
	o.wantSuccess(deployArguments, "The stack shop-stack does not exist in us-east-1: this creates it.",
		" is what infra/stacks/shop.toml says: payee "+testbed.Account(1)+" on eip155:8453, selling: yes, 8 prices, version 0.1.0, ledger shop-stack-Ledger-")
	if is := o.currentValue(outputCommit); is != first || o.currentValue(outputFormer) != "" {
		t.Errorf("on record are %s and %s, want %s", is, o.currentValue(outputFormer), first)
	}
	o.checkMark("shop-stack-Ledger-1A2B3C4D5E6F7", testbed.Account(1))
	o.replaceInStackFile(`LogLevel = "info"`, `LogLevel = "debug"`) // a change of a stack's file can be deployed before it is committed
	o.wantFailure([]string{"deploy", "shop"}, "LogLevel   info   debug\n", "Deploy this? [y/N]", "nobody confirmed, and nothing is deployed: set YES=1 to deploy without asking")
	if notes := o.wantSuccess(deployArguments, "LogLevel   info   debug\n"); strings.Contains(notes, "\ncode ") {
		t.Errorf("the code is the same:\n%s", notes)
	}
	if is := o.currentValue("LogLevel"); is != "debug" || o.currentValue(outputCommit) != first {
		t.Errorf("LogLevel is %s, and the code of %s", is, o.currentValue(outputCommit))
	}
	o.write("pkg/more.txt", "more")
	o.wantFailure(deployArguments, "these files are in no commit", "?? pkg/more.txt")
	second := o.commit("more")
	o.wantSuccess(deployArguments, "code   "+shortCommit(first)+"   "+shortCommit(second)+"\n")
	if o.currentValue(outputCommit) != second || o.currentValue(outputFormer) != first {
		t.Errorf("on record are %s and %s, want %s and %s", o.currentValue(outputCommit), o.currentValue(outputFormer), second, first)
	}
	// A typo, a secret and an environment that is too large are found before anything is
	// built.
	o.replaceInStackFile("LogLevel =", "LogLevl =", "Contact = ", "FacilitatorToken = \"s3cr3t\"\nContact = ")
	notes := o.wantFailure(deployArguments, "infra/stacks/shop.toml has 3 fault(s)", "did you mean LogLevel?", "FacilitatorToken is hidden (NoEcho)")
	if strings.Contains(notes, "sam build") || strings.Contains(notes, "s3cr3t") {
		t.Errorf("it built, or said a secret:\n%s", notes)
	}
}

// checkMark checks that a table is marked as the ledger of shop-stack, with the given payee
// and with the stack's origin.
func (o *operator) checkMark(table, payee string) {
	o.t.Helper()
	m, err := boot.Table{Name: table, AWS: o.account.emulator.Config()}.LoadMark(o.t.Context(), "shop-stack")
	if err != nil || m == nil || m.Payee != payee || m.Origin != o.currentValue(outputOrigin) || !strings.HasPrefix(m.By, "arn:aws:") {
		o.t.Errorf("%s is marked %+v, %v; want %s", table, m, err, payee)
	}
}

// copyAllowLine does what the message of a refused deployment tells the operator to do: it
// copies the line "allow = …" from the message into the stack's file.
func (o *operator) copyAllowLine(refusal string) {
	o.t.Helper()
	entry := regexp.MustCompile(`(?m)^  allow = .*$`).FindString(refusal)
	if entry == "" {
		o.t.Fatalf("the refusal does not say what to write:\n%s", refusal)
	}
	text := regexp.MustCompile(`(?m)^allow = .*$`)
	path := "infra/stacks/shop.toml"
	o.write(path, text.ReplaceAllLiteralString(o.read(path), strings.TrimSpace(entry)))
}

// TestRefused checks that a change of the payee, a change of the ledger, and a start of sales
// are refused unless the stack's file allows exactly this change. A deployment must also be
// refused if somebody else changes the stack while the deployment is being built.
func TestRefused(t *testing.T) {
	t.Parallel()
	o := newOperator(t, simulatedBuild)
	o.wantSuccess(deployArguments)

	// A new payee is refused until the file allows it. Then the new payee is deployed, but the
	// functions with the old payee still answer (see account.isLagging). So the command must
	// fail.
	o.replaceInStackFile(testbed.Account(1), testbed.Account(2))
	refusal := o.wantFailure(deployArguments, "another payee would be paid: from "+testbed.Account(1)+" to "+testbed.Account(2), `allow = ["payee=`+testbed.Account(1)+`->`+testbed.Account(2)+`"]`)
	o.copyAllowLine(refusal)
	o.account.setLagging(true)
	_, notes, err := o.runProgram(deployArguments...)
	if want := "the payee of ping is " + testbed.Account(1) + ", and should be " + testbed.Account(2); err == nil || !strings.Contains(notes, want) {
		t.Errorf("%v: it does not say %q:\n%s", err, want, notes)
	}
	o.checkMark("shop-stack-Ledger-1A2B3C4D5E6F7", testbed.Account(2))
	o.account.setLagging(false)
	o.replaceInStackFile(`LogLevel = "info"`, `LogLevel = "warn"`)
	o.wantSuccess(deployArguments, `note: allow has "payee=`+testbed.Account(1), "which is no longer needed: remove it", "payee "+testbed.Account(2))

	// Stopping the sales needs no permission in the file. Each start of sales needs a new
	// permission, which names the time of the stack's last change.
	o.replaceInStackFile(`Selling = "yes"`, `Selling = "no"`)
	o.wantSuccess(deployArguments, "Selling   yes   no\n", "selling: no")
	o.replaceInStackFile(`Selling = "no"`, `Selling = "yes"`)
	stale := o.wantFailure(deployArguments, "somebody has stopped selling, and this would start it again", `allow = ["selling=no since 20`)

	// While the operator's deployment is being built, somebody else changes the stack, for
	// example to stop its sales. Nothing may be deployed.
	mine := o.read("infra/stacks/shop.toml")
	o.copyAllowLine(stale)
	o.account.mu.Lock()
	o.account.afterBuild = func(s *stack) { s.updatedAt = time.Now() }
	o.account.mu.Unlock()
	o.wantFailure(deployArguments, "the stack shop-stack was changed meanwhile by somebody else, and nothing is deployed: begin again")
	o.write("infra/stacks/shop.toml", mine)

	// Another ledger is accepted only with Selling = no and a permission in the file.
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(o.account.emulator.Config()), "shop-copy"))
	o.replaceInStackFile(`LedgerTableName = ""`, `LedgerTableName = "shop-copy"`)
	o.wantFailure(deployArguments, "to shop-copy while something is sold", `deploy Selling = "no" first`)
	o.replaceInStackFile(`Selling = "yes"`, `Selling = "no"`)
	o.copyAllowLine(o.wantFailure(deployArguments, "the ledger knows what is in doubt, owed and answered", `->shop-copy"]`))
	o.wantSuccess(deployArguments, "ledger shop-copy")
	o.checkMark("shop-copy", testbed.Account(2))
	// A colleague may deploy from an old checkout, whose stack file does not name the new
	// table: the value is empty, or the line is missing. Neither file may be deployed.
	mine = o.read("infra/stacks/shop.toml")
	o.replaceInStackFile(`LedgerTableName = "shop-copy"`, `LedgerTableName = ""`)
	o.wantFailure(deployArguments, "from shop-copy to a new table", `allow = ["ledger=shop-copy->a new table"]`)
	o.replaceInStackFile(`LedgerTableName = ""`, ``)
	o.wantFailure(deployArguments, "LedgerTableName is missing")
	// stale is the permission for an earlier start of sales. It does not allow this start.
	o.write("infra/stacks/shop.toml", mine)
	o.replaceInStackFile(`Selling = "no"`, `Selling = "yes"`)
	o.copyAllowLine(stale)
	o.copyAllowLine(o.wantFailure(deployArguments, "somebody has stopped selling"))
	o.wantSuccess(deployArguments, "Selling   no    yes\n", "selling: yes")
}

// TestRollback checks that a rollback restores the code of the previous release, but no
// parameter. If the payee was changed or the sales were stopped after that release, the
// rollback must keep this change.
func TestRollback(t *testing.T) {
	t.Parallel()
	o := newOperator(t, simulatedBuild)
	rollBack := []string{"rollback", "-yes", "shop"}
	o.wantFailure(rollBack, "there is no stack shop-stack in us-east-1: nothing can be rolled back")
	o.wantSuccess(deployArguments)
	o.wantFailure(rollBack, "the previous release is not on record", "make rollback STACK=shop TO=commit")
	first := o.git("rev-parse", "HEAD")

	// The second release has another payee and one more parameter.
	o.replaceInStackFile(testbed.Account(1), testbed.Account(2))
	o.copyAllowLine(o.wantFailure(deployArguments))
	o.replaceIn("template.yaml", "Parameters:\n", "Parameters:\n  Motto:\n    Type: String\n    Default: \"\"\n")
	o.replaceInStackFile("Selling = ", "Motto = \"\"\nSelling = ")
	second := o.commit("another payee")
	o.wantSuccess(deployArguments, "payee "+testbed.Account(2))
	o.wantSuccess(rollBack, "code    "+shortCommit(second)+"   "+shortCommit(first)+"\n", "Motto", "left out: this release does not have it", "payee "+testbed.Account(2))
	if o.currentValue(outputCommit) != first || o.currentValue("PayTo") != testbed.Account(2) || o.currentValue(outputFormer) != "" {
		t.Errorf("%s", o.stackText())
	}
	if worktrees := o.git("worktree", "list"); strings.Count(worktrees, "\n") != 0 {
		t.Errorf("a checkout of the former release is left:\n%s", worktrees)
	}

	// The second release stops the sales. The rollback to the first release must not start them
	// again.
	o.replaceInStackFile(`Selling = "yes"`, `Selling = "no"`)
	o.wantSuccess(deployArguments, "selling: no", "payee "+testbed.Account(2))
	o.wantSuccess(rollBack, "selling: no", "payee "+testbed.Account(2))
	if o.currentValue(outputCommit) != first || o.currentValue("Selling") != "no" {
		t.Errorf("%s", o.stackText())
	}

	// A rollback is refused if the earlier release would ignore a value in the file, if a
	// price would change, or if the commit does not exist.
	o.replaceInStackFile(`Motto = ""`, `Motto = "never twice"`)
	o.wantSuccess(deployArguments)
	o.wantFailure(rollBack, "that release does not have Motto, so the value in the file would have no effect", `allow = ["without=Motto->`+shortCommit(first)+`"]`)
	o.replaceInStackFile(`Motto = "never twice"`, `Motto = ""`)
	o.replaceIn("pkg/catalog/operations.go", `Amount:  "1000"`, `Amount:  "2000"`)
	dear := o.commit("another price")
	o.wantFailure([]string{"rollback", "-yes", "-to", dear, "shop"}, "the price would change: from ping:1000 to 2000", `allow = ["price=ping:1000->2000"]`)
	o.wantFailure([]string{"rollback", "-yes", "-to", "nothing", "shop"}, "the commit nothing is not in this clone")
	o.wantFailure([]string{"rollback", "-yes", "-to", "--help", "shop"}, "is not in this clone")
}

// TestMake runs the make targets. The stack's file has no origin, so "make smoke" must take the
// origin from AWS. If the deployment is what the file says, "make smoke" must pay for a ping. If
// the deployment differs, "make smoke" must fail. In this test the SAM CLI really builds.
func TestMake(t *testing.T) {
	t.Parallel()
	o := newOperator(t, realBuild)
	runMake := func(wantErr bool, wantText string, arguments ...string) {
		t.Helper()
		cmd := testbed.Command(t, "make", arguments...)
		cmd.Dir, cmd.Env = o.root, o.env
		out, err := cmd.CombinedOutput()
		if (err != nil) != wantErr || !strings.Contains(string(out), wantText) {
			t.Errorf("make %v: %v; it does not say %q:\n%s", arguments, err, wantText, out)
		}
	}
	runMake(true, "usage: make deploy STACK=name", "deploy")
	runMake(true, "usage: make rollback STACK=name", "rollback")
	runMake(true, "usage: make smoke STACK=name", "smoke")
	runMake(true, "there is no infra/stacks/staging.toml", "deploy", "STACK=staging")
	runMake(true, "a stack's name has letters", "check-stack", "STACK=--help")
	runMake(false, "infra/stacks/shop.toml is valid", "check-stack", "STACK=shop")
	runMake(true, "there is no stack shop-stack in us-east-1: make deploy STACK=shop", "smoke", "STACK=shop")
	runMake(false, "Successfully created/updated stack", "deploy", "STACK=shop", "YES=1")
	runMake(false, `"ok": true`, "smoke", "STACK=shop")
	o.replaceInStackFile(testbed.Account(1), testbed.Account(2))
	runMake(true, "the payee of ping is "+testbed.Account(1)+", and should be "+testbed.Account(2), "smoke", "STACK=shop")
}
