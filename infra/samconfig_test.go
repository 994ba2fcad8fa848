package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

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
