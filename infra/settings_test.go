package main

import (
	"debug/elf"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// from is a CDK context.
func from(values map[string]any) func(*string) any {
	return func(key *string) any { return values[*key] }
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s, err := readSettings("..", from(map[string]any{"PayTo": boot.LocalPayTo, ctxNodes: nodesParameter, ctxAssets: assetsNone}))
	if err != nil {
		t.Fatal(err)
	}
	if s.stack != defaultStack || s.budget != defaultBudget || s.retention != defaultRetention || s.domain != "" || s.email != "" || s.build != "" || !s.reserve {
		t.Errorf("%+v", s)
	}
	tpl := template(t)
	for name, p := range tpl.Parameters {
		v, replaced := s.params[name]
		switch {
		case replaced == p.NoEcho:
			t.Errorf("%s: secret %v, replaced %v", name, p.NoEcho, replaced)
		case name == "PayTo":
			if v != boot.LocalPayTo {
				t.Errorf("%s = %v", name, v)
			}
		case replaced && v != *p.Default:
			t.Errorf("%s = %v, want the default %q", name, v, *p.Default)
		}
	}
	// Numbers may be numbers in cdk.json.
	s, err = readSettings("..", from(map[string]any{"PayTo": boot.LocalPayTo, ctxNodes: nodesParameter, ctxAssets: assetsNone, "RateLimitPerMinute": 20.0, ctxBudget: 12.5}))
	if err != nil || s.params["RateLimitPerMinute"] != "20" || s.budget != 12.5 {
		t.Errorf("%v, %v, %v", s.params["RateLimitPerMinute"], s.budget, err)
	}
}

// TestNodesOfProduction: the nodes come from the secret, or from a parameter that
// has no default.
func TestNodesOfProduction(t *testing.T) {
	t.Parallel()
	s, err := readSettings("..", from(map[string]any{
		"PayTo": boot.LocalPayTo, ctxNodes: nodesSecret, ctxAssets: assetsNone,
		"FacilitatorSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:facilitator-AbCdEf",
	}))
	if err != nil || s.params["RpcUrl"] != "secret" {
		t.Errorf("%v, %v", s.params["RpcUrl"], err)
	}
	p := section(synthesized(t), "Parameters")["RpcUrl"].(map[string]any)
	if _, ok := p["Default"]; ok || p["NoEcho"] != true || p["AllowedPattern"] != `^(none|https?://[^ ]+)$` {
		t.Errorf("RpcUrl is %v", p)
	}
}

// TestSettingsFaults: each by its name, all at once, and no secret repeated.
func TestSettingsFaults(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:acm:us-east-1:111122223333:certificate/c"
	for name, c := range map[string]struct {
		context map[string]any
		says    []string
	}{
		"nothing":               {map[string]any{"PayTo": nil}, []string{"PayTo is not set"}},
		"a wrong payee":         {map[string]any{"PayTo": "me"}, []string{"PayTo does not match"}},
		"a secret":              {map[string]any{"FacilitatorToken": "s3cr3t", "RpcUrl": "https://rpc.example/s3cr3t"}, []string{"FacilitatorToken would stand", "RpcUrl would stand"}},
		"a domain alone":        {map[string]any{ctxDomain: "api.example.com"}, []string{"domain and certificateArn go together"}},
		"a URL as domain":       {map[string]any{ctxDomain: "https://api.example.com", ctxCertificate: arn}, []string{"domain must be"}},
		"no certificate":        {map[string]any{ctxDomain: "api.example.com", ctxCertificate: "mine"}, []string{"certificateArn must be"}},
		"two origins":           {map[string]any{ctxDomain: "api.example.com", ctxCertificate: arn, "BaseUrl": "https://other.example.com"}, []string{"BaseUrl contradicts domain"}},
		"no e-mail address":     {map[string]any{ctxEmail: "ops", ctxTickets: "me"}, []string{"alarmEmail must be", "ticketEmail must be"}},
		"no budget":             {map[string]any{ctxBudget: 0.0}, []string{"budgetUsd must be"}},
		"a fortnight and a day": {map[string]any{ctxRetention: 15.0}, []string{"logRetentionDays must be a number of days, one of"}},
		"half a day":            {map[string]any{ctxRetention: 0.5}, []string{"logRetentionDays must be a number of days, one of"}},
		"perhaps":               {map[string]any{ctxReserve: "perhaps"}, []string{"reserveConcurrency must be true or false"}},
		"a list":                {map[string]any{ctxStack: []any{"a"}}, []string{"stackName must be a string"}},
		"other assets":          {map[string]any{ctxAssets: "docker"}, []string{"assets must be"}},
		"a high rate":           {map[string]any{"RateLimitPerMinute": "1000001"}, []string{"RateLimitPerMinute is not a number within"}},
		"no rate":               {map[string]any{"RateLimitPerMinute": "many"}, []string{"RateLimitPerMinute is not a number within"}},
		"a loud level":          {map[string]any{"LogLevel": "loud"}, []string{"LogLevel must be one of"}},
		"the public node":       {map[string]any{ctxNodes: nil}, []string{"nodes must be secret (rpc_urls in the secret of FacilitatorSecretArn) or parameter (cdk deploy --parameters RpcUrl=…): production must not ask the network's public node"}},
		"no secret":             {map[string]any{ctxNodes: nodesSecret}, []string{"nodes is secret, and FacilitatorSecretArn is not set"}},
		"all of it": {map[string]any{"PayTo": "me", ctxEmail: "ops", ctxDomain: "api.example.com", "LogLevel": "loud"},
			[]string{"4 fault(s)", "PayTo", "alarmEmail", "domain", "LogLevel"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			context := map[string]any{"PayTo": boot.LocalPayTo, ctxNodes: nodesParameter, ctxAssets: assetsNone}
			maps.Copy(context, c.context)
			_, err := readSettings("..", from(context))
			if err == nil || strings.Contains(err.Error(), "s3cr3t") {
				t.Fatalf("%v", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q is not said in:\n%v", s, err)
				}
			}
		})
	}
}

// TestCodeIsForLambda: a function that is not built, or built for another
// machine, is not deployed.
func TestCodeIsForLambda(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	build := func(slug string, machine elf.Machine) {
		t.Helper()
		write(t, filepath.Join(root, "functions", slug, "main.go"), nil)
		write(t, filepath.Join(root, "build", slug, "bootstrap"), header(machine))
	}
	check := func() error {
		c := &contextReader{get: from(nil)}
		c.built(root, filepath.Join(root, "build"))
		if len(c.faults) == 0 {
			return nil
		}
		return c.faults[0]
	}
	build("dns", elf.EM_AARCH64)
	if err := check(); err != nil {
		t.Errorf("arm64: %v", err)
	}
	build("dns", elf.EM_X86_64)
	if err := check(); err == nil || !strings.Contains(err.Error(), "has dns for another machine (make build ARCH=arm64)") {
		t.Errorf("amd64: %v", err)
	}
	build("dns", elf.EM_AARCH64)
	for _, mode := range []os.FileMode{0o700, 0o644} {
		if err := os.Chmod(filepath.Join(root, "build", "dns", "bootstrap"), mode); err != nil {
			t.Fatal(err)
		}
		if err := check(); err == nil || !strings.Contains(err.Error(), "has dns that others may not run (chmod 755") {
			t.Errorf("%o: %v", mode, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "build")); err != nil {
		t.Fatal(err)
	}
	if err := check(); err == nil || !strings.Contains(err.Error(), "has no dns (make build ARCH=arm64)") {
		t.Errorf("not built: %v", err)
	}
}

// header is as much of a binary as says what machine it is for.
func header(machine elf.Machine) []byte {
	h := make([]byte, 64)
	copy(h, "\x7fELF\x02\x01\x01")
	h[16], h[18], h[20] = byte(elf.ET_EXEC), byte(machine), 1
	h[52], h[54], h[58] = 64, 56, 64
	return h
}

// write writes a file, and the directories that it is in.
func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, text, 0o755), os.Chmod(path, 0o755)); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

// TestSamconfig: each environment has a stack of its own, and with it a namespace
// of its own for its metrics, and asks before it changes it. What it gives is what
// the template takes, and no build is cached.
func TestSamconfig(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../samconfig.toml")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]map[string]string{}
	header, assignment := regexp.MustCompile(`^\[([a-z_.]+)\]$`), regexp.MustCompile(`^([a-z0-9_]+) = "?([^"]*)"?$`)
	var in string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := header.FindStringSubmatch(line); m != nil {
			in = m[1]
			sections[in] = map[string]string{}
		} else if m := assignment.FindStringSubmatch(line); m != nil && in != "" {
			sections[in][m[1]] = m[2]
		} else if line != "" && line[0] != '#' && in != "" {
			t.Errorf("this test cannot read %q", line)
		}
	}
	if sections["default.build.parameters"]["cached"] != "false" {
		t.Error("a cached build would ship the old binary")
	}
	stacks := map[string]string{defaultStack: "the CDK app"}
	for _, env := range []string{"default", "dev", "prod"} {
		s := sections[env+".deploy.parameters"]
		if other, twice := stacks[s["stack_name"]]; twice || s["stack_name"] == "" {
			t.Errorf("%s: stack %q, as %s", env, s["stack_name"], other)
		}
		stacks[s["stack_name"]] = env
		if s["confirm_changeset"] != "true" || s["capabilities"] != "CAPABILITY_IAM" || s["resolve_s3"] != "true" {
			t.Errorf("%s: %v", env, s)
		}
	}
	for name, s := range sections {
		params := testParams()
		for pair := range strings.FieldsSeq(s["parameter_overrides"]) {
			key, value, _ := strings.Cut(pair, "=")
			if key == "PayTo" && !strings.Contains(name, "local_invoke") {
				t.Errorf("%s names a payee: it would be everybody's", name)
			}
			params[key] = value
		}
		if _, err := lambdahost.FromTemplate(templatePath, "build", params, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRunbookContext: the runbook has a row for each key of the CDK context, with
// its default.
func TestRunbookContext(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // key to default
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			rows[strings.Trim(name, " `")] = strings.Trim(cells[3], " `")
		}
	}
	for key, fallback := range map[string]string{
		ctxStack: defaultStack, ctxDomain: "none", ctxCertificate: "none", ctxEmail: "none", ctxTickets: ctxEmail,
		ctxBudget: strconv.Itoa(defaultBudget), ctxRetention: strconv.Itoa(defaultRetention),
		ctxReserve: "true", ctxAssets: assetsBuild, ctxNodes: "required",
	} {
		if got, ok := rows[key]; !ok || got != fallback {
			t.Errorf("%s: the runbook says %q (%v), want %q", key, got, ok, fallback)
		}
	}
}
