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
	o := newOperator(t, playsBuild)
	first := o.git("rev-parse", "HEAD")
	o.succeeds(deployIt, "The stack shop-stack does not exist in us-east-1: this creates it.",
		" is what infra/stacks/shop.toml says: payee "+testbed.Account(1)+" on eip155:8453, selling: yes, 8 prices, version 0.1.0, ledger shop-stack-Ledger-")
	if is := o.now(outputCommit); is != first || o.now(outputFormer) != "" {
		t.Errorf("on record are %s and %s, want %s", is, o.now(outputFormer), first)
	}
	o.marked("shop-stack-Ledger-1A2B3C4D5E6F7", testbed.Account(1))
	o.file(`LogLevel = "info"`, `LogLevel = "debug"`) // a change of a stack's file can be deployed before it is committed
	o.fails([]string{"deploy", "shop"}, "LogLevel   info   debug\n", "Deploy this? [y/N]", "nobody confirmed, and nothing is deployed: set YES=1 to deploy without asking")
	if notes := o.succeeds(deployIt, "LogLevel   info   debug\n"); strings.Contains(notes, "\ncode ") {
		t.Errorf("the code is the same:\n%s", notes)
	}
	if is := o.now("LogLevel"); is != "debug" || o.now(outputCommit) != first {
		t.Errorf("LogLevel is %s, and the code of %s", is, o.now(outputCommit))
	}
	o.write("pkg/more.txt", "more")
	o.fails(deployIt, "these files are in no commit", "?? pkg/more.txt")
	second := o.commit("more")
	o.succeeds(deployIt, "code   "+short(first)+"   "+short(second)+"\n")
	if o.now(outputCommit) != second || o.now(outputFormer) != first {
		t.Errorf("on record are %s and %s, want %s and %s", o.now(outputCommit), o.now(outputFormer), second, first)
	}
	// A typo, a secret and an environment that is too large are found before anything is
	// built.
	o.file("LogLevel =", "LogLevl =", "Contact = ", "FacilitatorToken = \"s3cr3t\"\nContact = ")
	notes := o.fails(deployIt, "infra/stacks/shop.toml has 3 fault(s)", "did you mean LogLevel?", "FacilitatorToken is hidden (NoEcho)")
	if strings.Contains(notes, "sam build") || strings.Contains(notes, "s3cr3t") {
		t.Errorf("it built, or said a secret:\n%s", notes)
	}
}

// marked checks that a table is marked as the ledger of shop-stack, with the given payee and
// with the stack's origin.
func (o *operator) marked(table, payee string) {
	o.t.Helper()
	m, err := boot.Table{Name: table, AWS: o.account.emulator.Config()}.LoadMark(o.t.Context(), "shop-stack")
	if err != nil || m == nil || m.Payee != payee || m.Origin != o.now(outputOrigin) || !strings.HasPrefix(m.By, "arn:aws:") {
		o.t.Errorf("%s is marked %+v, %v; want %s", table, m, err, payee)
	}
}

// allows does what the message of a refused deployment tells the operator to do: it copies the
// line "allow = …" from the message into the stack's file.
func (o *operator) allows(refusal string) {
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
	o := newOperator(t, playsBuild)
	o.succeeds(deployIt)

	// A new payee is refused until the file allows it. Then the new payee is deployed, but the
	// functions with the old payee still answer (see lag). So the command must fail.
	o.file(testbed.Account(1), testbed.Account(2))
	refusal := o.fails(deployIt, "another payee would be paid: from "+testbed.Account(1)+" to "+testbed.Account(2), `allow = ["payee=`+testbed.Account(1)+`->`+testbed.Account(2)+`"]`)
	o.allows(refusal)
	o.account.lag(true)
	_, notes, err := o.types(deployIt...)
	if want := "the payee of ping is " + testbed.Account(1) + ", and should be " + testbed.Account(2); err == nil || !strings.Contains(notes, want) {
		t.Errorf("%v: it does not say %q:\n%s", err, want, notes)
	}
	o.marked("shop-stack-Ledger-1A2B3C4D5E6F7", testbed.Account(2))
	o.account.lag(false)
	o.file(`LogLevel = "info"`, `LogLevel = "warn"`)
	o.succeeds(deployIt, `note: allow has "payee=`+testbed.Account(1), "which is no longer needed: remove it", "payee "+testbed.Account(2))

	// Stopping the sales needs no permission in the file. Each start of sales needs a new
	// permission, which names the time of the stack's last change.
	o.file(`Selling = "yes"`, `Selling = "no"`)
	o.succeeds(deployIt, "Selling   yes   no\n", "selling: no")
	o.file(`Selling = "no"`, `Selling = "yes"`)
	stale := o.fails(deployIt, "somebody has stopped selling, and this would start it again", `allow = ["selling=no since 20`)

	// While the operator's deployment is being built, somebody else changes the stack, for
	// example to stop its sales. Nothing may be deployed.
	mine := o.read("infra/stacks/shop.toml")
	o.allows(stale)
	o.account.mu.Lock()
	o.account.meanwhile = func(s *stack) { s.updated = time.Now() }
	o.account.mu.Unlock()
	o.fails(deployIt, "the stack shop-stack was changed meanwhile by somebody else, and nothing is deployed: begin again")
	o.write("infra/stacks/shop.toml", mine)

	// Another ledger is accepted only with Selling = no and a permission in the file.
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(o.account.emulator.Config()), "shop-copy"))
	o.file(`LedgerTableName = ""`, `LedgerTableName = "shop-copy"`)
	o.fails(deployIt, "to shop-copy while something is sold", `deploy Selling = "no" first`)
	o.file(`Selling = "yes"`, `Selling = "no"`)
	o.allows(o.fails(deployIt, "the ledger knows what is in doubt, owed and answered", `->shop-copy"]`))
	o.succeeds(deployIt, "ledger shop-copy")
	o.marked("shop-copy", testbed.Account(2))
	// A colleague may deploy from an old checkout, whose stack file does not name the new
	// table: the value is empty, or the line is missing. Neither file may be deployed.
	mine = o.read("infra/stacks/shop.toml")
	o.file(`LedgerTableName = "shop-copy"`, `LedgerTableName = ""`)
	o.fails(deployIt, "from shop-copy to a new table", `allow = ["ledger=shop-copy->a new table"]`)
	o.file(`LedgerTableName = ""`, ``)
	o.fails(deployIt, "LedgerTableName is missing")
	// stale is the permission for an earlier start of sales. It does not allow this start.
	o.write("infra/stacks/shop.toml", mine)
	o.file(`Selling = "no"`, `Selling = "yes"`)
	o.allows(stale)
	o.allows(o.fails(deployIt, "somebody has stopped selling"))
	o.succeeds(deployIt, "Selling   no    yes\n", "selling: yes")
}

// TestRollback checks that a rollback restores the code of the previous release, but no
// parameter. If the payee was changed or the sales were stopped after that release, the
// rollback must keep this change.
func TestRollback(t *testing.T) {
	t.Parallel()
	o := newOperator(t, playsBuild)
	rollBack := []string{"rollback", "-yes", "shop"}
	o.fails(rollBack, "there is no stack shop-stack in us-east-1: nothing can be rolled back")
	o.succeeds(deployIt)
	o.fails(rollBack, "the previous release is not on record", "make rollback STACK=shop TO=commit")
	first := o.git("rev-parse", "HEAD")

	// The second release has another payee and one more parameter.
	o.file(testbed.Account(1), testbed.Account(2))
	o.allows(o.fails(deployIt))
	o.change("template.yaml", "Parameters:\n", "Parameters:\n  Motto:\n    Type: String\n    Default: \"\"\n")
	o.file("Selling = ", "Motto = \"\"\nSelling = ")
	second := o.commit("another payee")
	o.succeeds(deployIt, "payee "+testbed.Account(2))
	o.succeeds(rollBack, "code    "+short(second)+"   "+short(first)+"\n", "Motto", "left out: this release does not have it", "payee "+testbed.Account(2))
	if o.now(outputCommit) != first || o.now("PayTo") != testbed.Account(2) || o.now(outputFormer) != "" {
		t.Errorf("%s", o.stack())
	}
	if left := o.git("worktree", "list"); strings.Count(left, "\n") != 0 {
		t.Errorf("a checkout of the former release is left:\n%s", left)
	}

	// The second release stops the sales. The rollback to the first release must not start them
	// again.
	o.file(`Selling = "yes"`, `Selling = "no"`)
	o.succeeds(deployIt, "selling: no", "payee "+testbed.Account(2))
	o.succeeds(rollBack, "selling: no", "payee "+testbed.Account(2))
	if o.now(outputCommit) != first || o.now("Selling") != "no" {
		t.Errorf("%s", o.stack())
	}

	// A rollback is refused if the earlier release would ignore a value in the file, if a
	// price would change, or if the commit does not exist.
	o.file(`Motto = ""`, `Motto = "never twice"`)
	o.succeeds(deployIt)
	o.fails(rollBack, "that release does not have Motto, so the value in the file would have no effect", `allow = ["without=Motto->`+short(first)+`"]`)
	o.file(`Motto = "never twice"`, `Motto = ""`)
	o.change("pkg/catalog/operations.go", `Amount:  "1000"`, `Amount:  "2000"`)
	dear := o.commit("another price")
	o.fails([]string{"rollback", "-yes", "-to", dear, "shop"}, "the price would change: from ping:1000 to 2000", `allow = ["price=ping:1000->2000"]`)
	o.fails([]string{"rollback", "-yes", "-to", "nothing", "shop"}, "the commit nothing is not in this clone")
	o.fails([]string{"rollback", "-yes", "-to", "--help", "shop"}, "is not in this clone")
}

// TestMake runs the make targets. The stack's file has no origin, so "make smoke" must take the
// origin from AWS. If the deployment is what the file says, "make smoke" must pay for a ping. If
// the deployment differs, "make smoke" must fail. In this test the SAM CLI really builds.
func TestMake(t *testing.T) {
	t.Parallel()
	o := newOperator(t, reallyBuilds)
	makes := func(fails bool, says string, arguments ...string) {
		t.Helper()
		cmd := testbed.Command(t, "make", arguments...)
		cmd.Dir, cmd.Env = o.root, o.env
		out, err := cmd.CombinedOutput()
		if (err != nil) != fails || !strings.Contains(string(out), says) {
			t.Errorf("make %v: %v; it does not say %q:\n%s", arguments, err, says, out)
		}
	}
	makes(true, "usage: make deploy STACK=name", "deploy")
	makes(true, "usage: make rollback STACK=name", "rollback")
	makes(true, "usage: make smoke STACK=name", "smoke")
	makes(true, "there is no infra/stacks/staging.toml", "deploy", "STACK=staging")
	makes(true, "a stack's name has letters", "check-stack", "STACK=--help")
	makes(false, "infra/stacks/shop.toml is valid", "check-stack", "STACK=shop")
	makes(true, "there is no stack shop-stack in us-east-1: make deploy STACK=shop", "smoke", "STACK=shop")
	makes(false, "Successfully created/updated stack", "deploy", "STACK=shop", "YES=1")
	makes(false, `"ok": true`, "smoke", "STACK=shop")
	o.file(testbed.Account(1), testbed.Account(2))
	makes(true, "the payee of ping is "+testbed.Account(1)+", and should be "+testbed.Account(2), "smoke", "STACK=shop")
}
