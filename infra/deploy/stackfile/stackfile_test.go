package stackfile_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
	"github.com/hostfacts/hostfacts/infra/sam"
)

const root = "../../.."

func template(t *testing.T) *sam.Template {
	t.Helper()
	tpl, err := sam.Read(filepath.Join(root, "template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// filled reads a copy of infra/stacks/example.toml, filled in as a person would fill it in. The
// changes are pairs: a text in the file, and the text that replaces it.
func filled(t *testing.T, changes ...string) (stackfile.File, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, stackfile.Folder, "example.toml"))
	if err != nil {
		t.Fatal(err)
	}
	written := strings.NewReplacer(
		`"0x…"`, `"0x70997970C51812dc3A010C7d01b50e0d17dc79C8"`,
		`"https://…"`, `"https://facilitator.example"`,
		`"arn:aws:secretsmanager:…"`, `"arn:aws:secretsmanager:us-east-1:111122223333:secret:facilitator-AbCdEf"`,
		`"arn:aws:acm:…"`, `"arn:aws:acm:us-east-1:111122223333:certificate/a"`,
	).Replace(string(text))
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(written, changes[i]) {
			t.Fatalf("the example no longer has %q", changes[i])
		}
		written = strings.Replace(written, changes[i], changes[i+1], 1)
	}
	dir := t.TempDir()
	path, err := stackfile.Path(dir, "production")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	return stackfile.Read(dir, "production")
}

// TestExample checks that infra/stacks/example.toml has every parameter that is not hidden,
// and is refused until it is filled in.
func TestExample(t *testing.T) {
	t.Parallel()
	f, err := filled(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Check(template(t)); err != nil {
		t.Error(err)
	}
	if f.Stack != "hostfacts-production" || f.Region != "us-east-1" || f.Toolchain != stackfile.CDK || f.Settings["budgetUsd"] != 80.0 || f.Parameters["RateLimitPerMinute"] != "300" {
		t.Errorf("%+v", f)
	}
	var known []string
	for name, p := range template(t).Parameters {
		if !p.NoEcho {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	if has := slices.Sorted(maps.Keys(f.Parameters)); !slices.Equal(has, known) {
		t.Errorf("the example has %v, and the template %v", has, known)
	}
	copied, err := stackfile.Read(root, "example")
	if err != nil {
		t.Fatal(err)
	}
	err = copied.Check(template(t))
	for _, want := range []string{"infra/stacks/example.toml has 4 fault(s)", "PayTo is not filled in", "FacilitatorUrl is not filled in", "FacilitatorSecretArn is not filled in", "certificateArn is not filled in"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a copy that is not filled in: %q is not said in:\n%v", want, err)
		}
	}
}

// TestFaults reads and checks files with faults. The error must name every fault of the file,
// and must not show a secret.
func TestFaults(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("a", n) }
	for name, c := range map[string]struct {
		changes []string
		says    []string
	}{
		"a typo":               {[]string{"LogLevel =", "LogLevl ="}, []string{"2 fault(s)", "LogLevl is no parameter of template.yaml: did you mean LogLevel?", `LogLevel is missing, whose default is "info"`}},
		"another typo":         {[]string{"LogLevel =", "Verbosity ="}, []string{"Verbosity is no parameter of template.yaml\n"}},
		"no payee":             {[]string{"PayTo = ", "# PayTo = "}, []string{"PayTo is missing, which the template has no default for: a stack keeps the old value"}},
		"a wrong value":        {[]string{`LogLevel = "info"`, `LogLevel = "loud"`}, []string{"LogLevel must be one of"}},
		"a wrong number":       {[]string{"RateLimitPerMinute = 300", "RateLimitPerMinute = -1"}, []string{"RateLimitPerMinute is not a number within its bounds"}},
		"a hidden parameter":   {[]string{"Selling = ", "ReceiptKey = \"" + long(43) + "\"\nSelling = "}, []string{"ReceiptKey is hidden (NoEcho)", "put it in the secret that FacilitatorSecretArn names"}},
		"of the fallback":      {[]string{"Selling = ", "FacilitatorFallbackToken = \"s3cr3t\"\nSelling = "}, []string{"in the secret that FacilitatorFallbackSecretArn names"}},
		"nobody settles":       {[]string{`FacilitatorUrl = "https://facilitator.example"`, `FacilitatorUrl = ""`}, []string{"FacilitatorUrl is empty. It is required while Selling is yes"}},
		"among the settings":   {[]string{"nodes = ", "Selling = \"no\"\nnodes = "}, []string{"Selling is a parameter of the template: it belongs in [default.deploy.parameters.parameter_overrides]"}},
		"long files":           {[]string{`WellKnownFiles = ""`, `WellKnownFiles = '{"` + long(2050) + `"}'`}, []string{"WellKnownFiles has 2054 characters, and 2048 is the most"}},
		"a large environment":  {[]string{`WellKnownFiles = ""`, `WellKnownFiles = '{"` + long(2000) + `"}'`, `OwnershipProofs = ""`, `OwnershipProofs = "0x` + long(130) + `"`, `ReceiptPublicKeys = ""`, `ReceiptPublicKeys = "` + long(43) + `"`}, nil},
		"unknown toolchain":    {[]string{`toolchain = "cdk"`, `toolchain = "terraform"`}, []string{`toolchain in [hostfacts] must be "sam" or "cdk"`}},
		"a slip in our table":  {[]string{"allow = ", "alow = "}, []string{"hostfacts.alow in line"}},
		"another table":        {[]string{"[hostfacts.cdk]", "[hostfact.cdk]"}, []string{"hostfact.cdk in line"}},
		"no region":            {[]string{"region = ", "# region = "}, []string{"[default.deploy.parameters] has no region"}},
		"a text of parameters": {[]string{"[default.deploy.parameters.parameter_overrides]", "parameter_overrides = \"PayTo=0x1\"\n[default.package.parameters]"}, []string{"the parameters must be a table"}},
		"what SAM changes":     {[]string{`Contact = ""`, `Contact = '"a"'`}, []string{"Contact has a quotation mark around it"}},
		"a truth value":        {[]string{`Selling = "yes"`, `Selling = true`}, []string{"Selling must be a text or a whole number"}},
		"no TOML":              {[]string{`Selling = "yes"`, `Selling = yes`}, []string{"line 2", "column"}},
	} {
		f, err := filled(t, c.changes...)
		if err == nil {
			err = f.Check(template(t))
		}
		for _, want := range c.says {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%s: %q is not said in:\n%v", name, want, err)
			}
		}
		if c.says == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEnvironment checks files whose environments have different sizes. Check must refuse a
// file if and only if an environment, as Lambda counts it, has more bytes than
// EnvironmentLimit. The error must name the largest variables.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	room := func(keys int) []string {
		all := slices.Repeat([]string{strings.Repeat("k", 43)}, keys)
		return []string{`WellKnownFiles = ""`, `WellKnownFiles = '{"` + strings.Repeat("a", 2000) + `"}'`, `ReceiptPublicKeys = ""`, `ReceiptPublicKeys = "` + strings.Join(all, ",") + `"`}
	}
	refused := 0
	for keys := range 40 {
		f, err := filled(t, room(keys)...)
		if err != nil {
			t.Fatal(err)
		}
		bytes := counted(t, f)
		err = f.Check(template(t))
		if (err != nil) != (bytes > stackfile.EnvironmentLimit) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
		if err == nil {
			continue
		}
		refused++
		for _, want := range []string{fmt.Sprintf("Function has %d bytes, and Lambda takes 4096 at most. The largest variables: WELL_KNOWN_FILES 2028, RECEIPT_PUBLIC_KEYS %d,", bytes, keys*44+24), "Each hidden parameter is counted with 128 bytes"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not said in:\n%v", want, err)
			}
		}
	}
	if refused == 0 || refused == 40 {
		t.Errorf("%d of 40 are refused", refused)
	}
}

// counted returns the number of bytes of the largest environment as Lambda counts it: as a
// JSON object.
func counted(t *testing.T, f stackfile.File) (most int) {
	t.Helper()
	values := maps.Clone(f.Parameters)
	values["AWS::StackName"], values["Ledger"] = f.Stack, f.Stack+"-Ledger-1A2B3C4D5E6F7"
	functions, err := template(t).Functions(values)
	if err != nil {
		t.Fatal(err)
	}
	for _, function := range functions {
		if function.Slug != "dns" { // the dns function has every variable
			continue
		}
		for _, concealed := range []string{"RPC_URL", "RECEIPT_KEY", "FACILITATOR_KEY_SECRET", "FACILITATOR_TOKEN", "FACILITATOR_FALLBACK_KEY_SECRET", "FACILITATOR_FALLBACK_TOKEN"} {
			function.Env[concealed] = strings.Repeat("h", stackfile.HiddenRoom)
		}
		text, err := json.Marshal(function.Env)
		if err != nil {
			t.Fatal(err)
		}
		most = len(text)
	}
	return most
}

// TestName checks that Path refuses names that could lead to a file outside the folder of the
// stack files. If a stack has no file, the error must say which file to copy.
func TestName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "../production", "a/b", "-x", "a.toml", "a b", strings.Repeat("a", 200)} {
		if path, err := stackfile.Path(root, name); err == nil {
			t.Errorf("%q leads to %s", name, path)
		}
	}
	if _, err := stackfile.Read(root, "nothing"); err == nil || !strings.Contains(err.Error(), "copy infra/stacks/example.toml to it") {
		t.Errorf("%v", err)
	}
}
