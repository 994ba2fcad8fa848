package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/operators"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
)

// TestBootstrapRoles checks that the operators who deploy may assume exactly the roles with
// which the CDK CLI deploys this stack. These are the roles that the app names to the CLI,
// except the role of CloudFormation.
func TestBootstrapRoles(t *testing.T) {
	t.Parallel()
	d := exampleTemplate(t) // skips the test if Node is missing
	out := t.TempDir()
	cmd := exec.Command(must(os.Executable())(t))
	cmd.Env = append(os.Environ(), "CDK_OUTDIR="+out, "CDK_CONTEXT_JSON="+string(must(json.Marshal(deployed.Context()))(t)), "GORACE=exitcode=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	roles := regexp.MustCompile(`arn:\$\{AWS::Partition\}:iam::[^"]*`)
	assumed := map[string]bool{}
	for _, name := range []string{"manifest.json", deployed.Stack + ".assets.json"} {
		for _, arn := range roles.FindAllString(string(must(os.ReadFile(filepath.Join(out, name)))(t)), -1) {
			if !strings.Contains(arn, "-cfn-exec-role-") {
				assumed[arn] = true
			}
		}
	}
	policy := string(must(json.Marshal(properties(d, "DeployRole")["Policies"]))(t))
	granted := roles.FindAllString(policy, -1)
	if diff := gocmp.Diff(slices.Sorted(maps.Keys(assumed)), slices.Sorted(slices.Values(granted))); diff != "" {
		t.Errorf("roles of the CDK (-assumed +granted):\n%s", diff)
	}
}

// TestRolesAreGiven checks that a role exists only if somebody may assume it, and that the
// role is for the table that LedgerTableName names. A wildcard, or anything else that is not
// the ARN of a role, a user or an account, must be refused.
func TestRolesAreGiven(t *testing.T) {
	t.Parallel()
	context := deployed.Context()
	for _, r := range operators.Roles() {
		delete(context, r.Setting)
	}
	context["mayRefund"] = "arn:aws:iam::111122223333:role/support"
	context["LedgerTableName"] = "a-table"
	var d document
	check(t, json.Unmarshal(must(synth(t, ".", context))(t), &d))
	for _, r := range operators.Roles() {
		if made := slices.Contains(ofType(d, "AWS::IAM::Role"), r.Name+"Role"); made != (r.Name == "Refund") {
			t.Errorf("%sRole is there: %t", r.Name, made)
		}
	}
	text := string(must(json.Marshal(properties(d, "RefundRole")))(t))
	if !strings.Contains(text, ":table/a-table/index/open") || strings.Contains(text, "${Ledger.Arn}") {
		t.Errorf("the role is for another table: %s", text)
	}
	for _, nobody := range []string{"*", "arn:aws:iam::111122223333:*", "arn:aws:iam::*:root", "arn:aws:sts::111122223333:assumed-role/a/b", "ann"} {
		given := deployed.Context()
		given["mayRead"] = nobody
		_, err := parseSettings("../..", contextOf(given))
		if err == nil || !strings.Contains(err.Error(), "mayRead must be ARNs of roles or users") {
			t.Errorf("%q: %v", nobody, err)
		}
	}
}
