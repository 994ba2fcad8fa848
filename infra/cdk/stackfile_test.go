package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// stackAt returns the folder infra/cdk of a new checkout. The checkout has one stack file: a
// copy of infra/stacks/example.toml, filled in as a person would fill it in, with the given
// changes.
func stackAt(t *testing.T, changes ...string) (app string) {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, templateName), must(os.ReadFile(templatePath))(t))
	text := string(must(os.ReadFile(filepath.Join("../..", stackfile.Folder, "example.toml")))(t))
	filled := strings.NewReplacer(append([]string{
		`"0x…"`, `"` + boot.LocalPayTo + `"`, `"https://…"`, `"` + facilitatorURL + `"`, `"arn:aws:secretsmanager:…"`, `"` + testSecret + `"`,
		`"arn:aws:acm:…"`, `"arn:aws:acm:us-east-1:111122223333:certificate/a"`, `"hostfacts-production"`, `"` + defaultStack + `"`,
	}, changes...)...).Replace(text)
	write(t, must(stackfile.Path(root, "production"))(t), []byte(filled))
	app = filepath.Join(root, "infra", "cdk")
	write(t, filepath.Join(app, "cdk.json"), nil)
	return app
}

// TestStackFile checks that the app makes the same template whether the settings come from the
// stack's file or from the CDK CLI's option -c. The app must also write the commits of the
// code into the outputs.
func TestStackFile(t *testing.T) {
	t.Parallel()
	app := stackAt(t)
	by := func(context map[string]any) (d document) {
		t.Helper()
		context[ctxAssets] = assetsNone
		check(t, json.Unmarshal(must(synth(t, app, context))(t), &d))
		return d
	}
	got := by(map[string]any{ctxFile: "production"})
	want := by(map[string]any{
		"PayTo": boot.LocalPayTo, "FacilitatorUrl": facilitatorURL, "FacilitatorSecretArn": testSecret, ctxNodes: nodesSecret, ctxDomain: "api.example.com",
		ctxCertificate: "arn:aws:acm:us-east-1:111122223333:certificate/a", ctxEmail: "oncall@example.com", ctxTickets: "team@example.com", ctxBudget: 80.0,
	})
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("(-by -c +by the file):\n%s", d)
	}
	recorded := section(by(map[string]any{ctxFile: "production", ctxCommit: "c0ffee", ctxFormer: "decade"}), "Outputs")
	for name, value := range map[string]string{"Commit": "c0ffee", "FormerCommit": "decade"} {
		if output, _ := recorded[name].(document); output["Value"] != value {
			t.Errorf("the output %s is %v, want %s", name, output, value)
		}
		if section(got, "Outputs")[name] != nil {
			t.Errorf("a deployment by hand has the output %s", name)
		}
	}
}

// TestStackFileFaults checks that a fault in the file ends the app with an error that names
// the fault. The only exception is a setting that this release does not know, if the context
// says that such settings are ignored.
func TestStackFileFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		changes []string
		context map[string]any
		says    string // empty means no fault
	}{
		"no such file":           {nil, map[string]any{ctxFile: "staging"}, "there is no infra/stacks/staging.toml: copy infra/stacks/example.toml"},
		"a typo in a parameter":  {[]string{"LogLevel =", "LogLevl ="}, nil, "LogLevl is no parameter of template.yaml: did you mean LogLevel?"},
		"a typo in a setting":    {[]string{"budgetUsd", "budgetUSD"}, nil, "[hostfacts.cdk] has what is no setting of the CDK app: budgetUSD"},
		"a setting that is not":  {[]string{"budgetUsd = 80", "budgetUsd = 0"}, nil, "budgetUsd must be a number above 0"},
		"a setting of tomorrow":  {[]string{"budgetUsd", "budgetEuro"}, map[string]any{ctxUnknown: ignoreUnknown}, ""},
		"two origins":            {[]string{`BaseUrl = "https://api.example.com"`, `BaseUrl = "https://other.example.com"`}, nil, "BaseUrl contradicts domain"},
		"without the secret ARN": {[]string{`FacilitatorSecretArn = "arn:aws:secretsmanager:…"`, `FacilitatorSecretArn = ""`}, nil, "nodes is secret, and FacilitatorSecretArn is not set"},
	} {
		context := map[string]any{ctxFile: "production", ctxAssets: assetsNone}
		for key, value := range c.context {
			context[key] = value
		}
		_, err := synth(t, stackAt(t, c.changes...), context)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %q is not said in:\n%v", name, c.says, err)
		}
	}
}
