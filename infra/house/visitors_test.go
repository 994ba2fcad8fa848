package house

import (
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// manifests returns the names of the files that list dependencies, each with Dependabot's name
// for the file's ecosystem.
func manifests() map[string]string {
	return map[string]string{"go.mod": "gomod", "package.json": "npm", "requirements.txt": "pip"}
}

// updateEntry is an entry of dependabot.yml. It has the settings for one ecosystem.
type updateEntry struct {
	Ecosystem   string   `yaml:"package-ecosystem"`
	Directories []string `yaml:"directories"`
	Schedule    struct {
		Interval string `yaml:"interval"`
	} `yaml:"schedule"`
	Cooldown struct {
		Days int `yaml:"default-days"`
	} `yaml:"cooldown"`
	Groups map[string]struct {
		Patterns []string `yaml:"patterns"`
	} `yaml:"groups"`
}

// TestDependabot checks that Dependabot looks at exactly the folders that have manifests, and
// at the root for the actions of workflows. Each ecosystem must get one pull request a week,
// with versions that are at least some days old.
func TestDependabot(t *testing.T) {
	var config struct {
		Version int           `yaml:"version"`
		Updates []updateEntry `yaml:"updates"`
	}
	if err := yaml.Unmarshal([]byte(readText(t, filepath.Join(root, ".github", "dependabot.yml"))), &config); err != nil {
		t.Fatal(err)
	}
	if config.Version != 2 {
		t.Errorf("version %d, want 2", config.Version)
	}
	got := map[string][]string{}
	for _, u := range config.Updates {
		if _, twice := got[u.Ecosystem]; twice {
			t.Errorf("%s has two entries, and so two pull requests", u.Ecosystem)
		}
		got[u.Ecosystem] = u.Directories
		if u.Schedule.Interval != "weekly" || u.Cooldown.Days == 0 {
			t.Errorf("%s: %q after %d days, want weekly and some days", u.Ecosystem, u.Schedule.Interval, u.Cooldown.Days)
		}
		if len(u.Groups) != 1 || !slices.Equal(u.Groups[u.Ecosystem].Patterns, []string{"*"}) {
			t.Errorf("%s: groups %v, want one of everything with its name", u.Ecosystem, u.Groups)
		}
	}
	want := manifestFolders(t)
	want["github-actions"] = []string{"/"}
	for ecosystem, folders := range want {
		if !slices.Equal(got[ecosystem], folders) {
			t.Errorf("%s looks at\n%v, want\n%v", ecosystem, got[ecosystem], folders)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d languages are looked at, and there are %d", len(got), len(want))
	}
}

// manifestFolders returns the sorted folders that have manifests, by Dependabot's name for the
// ecosystem. It skips the test if there is no git or no repository.
func manifestFolders(t *testing.T) map[string][]string {
	t.Helper()
	git := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	folders := map[string][]string{}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		if ecosystem, ok := manifests()[path.Base(name)]; ok {
			folders[ecosystem] = append(folders[ecosystem], path.Join("/", path.Dir(name)))
		}
	}
	for _, all := range folders {
		slices.Sort(all)
	}
	return folders
}

// issueForm is a GitHub issue form.
type issueForm struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	Body        []struct {
		Type       string `yaml:"type"`
		ID         string `yaml:"id"`
		Attributes struct {
			Label   string `yaml:"label"`
			Options []struct {
				Label    string `yaml:"label"`
				Required bool   `yaml:"required"`
			} `yaml:"options"`
		} `yaml:"attributes"`
	} `yaml:"body"`
}

// TestIssueForms checks that GitHub accepts the issue forms, and that no form asks for a secret
// with which others could take a user's money. A user might paste such a secret anyway, so each
// form must warn against it.
func TestIssueForms(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, ".github", "ISSUE_TEMPLATE", "*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range paths {
		if filepath.Base(file) == "config.yml" {
			continue
		}
		seen++
		text := readText(t, file)
		var f issueForm
		if err := yaml.Unmarshal([]byte(text), &f); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !strings.Contains(text, "private key") || !strings.Contains(text, "PAYMENT-SIGNATURE") {
			t.Errorf("%s does not say that keys and signatures are to be left out", file)
		}
		f.check(func(format string, args ...any) { t.Errorf(file+": "+format, args...) })
	}
	if seen == 0 {
		t.Error("there are no forms: this test looks at nothing")
	}
}

func (f issueForm) check(fault func(format string, args ...any)) {
	if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
		fault("GitHub wants a name, a description and a body")
	}
	secret := regexp.MustCompile(`(?i)\b(key|phrase|signature|seed|secret)`)
	ids := map[string]bool{}
	for _, field := range f.Body {
		if field.Type == "markdown" {
			continue
		}
		if field.ID == "" || ids[field.ID] || field.Attributes.Label == "" {
			fault("the field %q needs a label, and an id that no other has", field.ID)
		}
		ids[field.ID] = true
		if secret.MatchString(field.Attributes.Label) {
			fault("asks for %q", field.Attributes.Label)
		}
	}
}

// TestPaymentForm checks that the form for payments asks for the facts that identify a
// payment, such as the wallet and the transaction. Before a user can send the form, the user
// must confirm that there are no secrets in it.
func TestPaymentForm(t *testing.T) {
	var f issueForm
	if err := yaml.Unmarshal([]byte(readText(t, filepath.Join(root, ".github", "ISSUE_TEMPLATE", "payment.yml"))), &f); err != nil {
		t.Fatal(err)
	}
	var ids []string
	looked := false
	for _, field := range f.Body {
		ids = append(ids, field.ID)
		for _, option := range field.Attributes.Options {
			looked = looked || option.Required && strings.Contains(option.Label, "no private key, recovery phrase or signature")
		}
	}
	for _, id := range []string{"origin", "wallet", "transaction", "network", "time"} {
		if !slices.Contains(ids, id) {
			t.Errorf("it does not ask for the %s: %v", id, ids)
		}
	}
	if !looked {
		t.Error("it can be sent without a look for secrets")
	}
}

// TestPullRequestTemplate checks that the make targets in the pull request template exist.
func TestPullRequestTemplate(t *testing.T) {
	makefile := readText(t, filepath.Join(root, "Makefile"))
	asked := makeCommand.FindAllStringSubmatch(readText(t, filepath.Join(root, ".github", "PULL_REQUEST_TEMPLATE.md")), -1)
	if len(asked) == 0 {
		t.Error("it asks for no command of this repository")
	}
	for _, command := range asked {
		checkTarget(t, "the template of pull requests", makefile, command[1], strings.Fields(command[2]))
	}
}
