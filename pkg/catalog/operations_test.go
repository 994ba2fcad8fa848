package catalog

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestOperations checks prices and deadlines. A bundle must cost as much as its parts
// together, and the bundle's text must say this. All operations of a kind must have the same
// deadline, except that the tool Headers must have the deadline of the bundle uptime-check.
func TestOperations(t *testing.T) {
	for _, b := range Playbooks() {
		sum := 0
		for _, slug := range b.Sequence {
			op, _ := BySlug(slug)
			n, err := strconv.Atoi(op.Amount)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if bundle, _ := BySlug(b.Bundle); bundle.Amount != strconv.Itoa(sum) || !strings.Contains(bundle.Use, "the price of the three") {
			t.Errorf("%s costs %s, its parts %d, and the texts say %q", b.Bundle, bundle.Amount, sum, bundle.Use)
		}
	}
	if single, all := Headers().Deadline, UptimeCheck().Deadline; single != all {
		t.Errorf("headers has %s, uptime-check, which asks the same of the host, %s", single, all)
	}
	deadlines := map[Kind]time.Duration{}
	for _, op := range All() {
		if op.Slug == Headers().Slug {
			continue
		}
		if deadline, ok := deadlines[op.Kind]; ok && deadline != op.Deadline {
			t.Errorf("%s has %s, others of its kind %s", op.Slug, op.Deadline, deadline)
		}
		deadlines[op.Kind] = op.Deadline
	}
}

// TestEntries checks that the catalog's entry for an operation has everything that the
// documents print, and that the example answer belongs to the example query.
func TestEntries(t *testing.T) {
	for _, op := range All() {
		t.Run(op.Slug, func(t *testing.T) {
			for member, text := range map[string]string{
				"Path": op.Path, "Title": op.Title, "Tool": op.Tool, "Kind": string(op.Kind), "Tags": strings.Join(op.Tags, ""),
				"Result": op.Result, "Use": op.Use, "Summary": op.Summary, "Description": op.Description,
				"Question": op.Question, "Returns": op.Returns,
			} {
				if text == "" {
					t.Errorf("the entry has no %s", member)
				}
			}
			checkDescriptions(t, op.Fields)
			var answer struct{ Domain string }
			if err := json.Unmarshal([]byte(op.Response), &answer); err != nil {
				t.Errorf("Response: %v", err)
			}
			for _, p := range op.Example() {
				if p.Name == "domain" && answer.Domain != p.Example {
					t.Errorf("Response answers for %q, and Example asks for %q", answer.Domain, p.Example)
				}
			}
		})
	}
}

// TestChangelog checks that the changelog names each operation, by its path or its slug.
func TestChangelog(t *testing.T) {
	log, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range All() {
		if !strings.Contains(string(log), "`"+op.Path+"`") && !strings.Contains(string(log), "`"+op.Slug+"`") {
			t.Errorf("CHANGELOG.md does not name `%s`: say below Unreleased, in Added, what it answers", op.Path)
		}
	}
}

// TestQuestions checks that an operation's question names exactly the parameters that a client
// chooses. The question is a heading, which must show everything that the client asked for.
func TestQuestions(t *testing.T) {
	placeholder := regexp.MustCompile(`\{([^}]*)\}`)
	for _, op := range All() {
		var chosen, inQuestion []string
		for _, p := range op.Params {
			if p.Required || len(p.Enum) > 1 {
				chosen = append(chosen, p.Name)
			}
		}
		for _, found := range placeholder.FindAllStringSubmatch(op.Question, -1) {
			inQuestion = append(inQuestion, found[1])
		}
		slices.Sort(chosen)
		slices.Sort(inQuestion)
		if !slices.Equal(chosen, inQuestion) {
			t.Errorf("%s: the question %q names %v, and its sender chooses %v", op.Slug, op.Question, inQuestion, chosen)
		}
	}
}

// checkDescriptions checks that every field has a description. The description of a field
// comes from the struct tag doc in the result's type.
func checkDescriptions(t *testing.T, fields []Field) {
	t.Helper()
	if len(fields) == 0 {
		t.Error("the entry has no Fields")
	}
	for _, f := range fields {
		if f.Description == "" {
			t.Errorf("the field %s has no tag doc", f.Name)
		}
		for _, part := range append([]Field{f}, f.Items...) {
			if len(part.Fields) > 0 {
				checkDescriptions(t, part.Fields)
			}
		}
	}
}

// TestSlip checks which parameter Slip returns for a name that the operation does not have,
// because the name is misspelt or belongs to another operation. Slip must not return a
// parameter that accepts every value.
func TestSlip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ op, name, meant string }{
		{"dns", "tpye", "type"}, {"dns", "types", "type"}, {"dns", "TYPE", "type"}, {"dns", "dns_type", "type"}, {"dns", "typé", "type"},
		{"dns", "domain ", "domain"}, {"dns", "type", ""}, {"dns", "port", ""}, {"dns", "tp", ""}, {"dns", "name", ""}, {"dns", "%74ype", ""},
		{"host-intel", "type", "dns_type"}, {"host-intel", "dnstype", "dns_type"}, {"host-intel", "dns-type", "dns_type"},
		{"ssl-check", "prot", "port"}, {"ssl-check", "type", ""}, {"whois", "domian", "domain"}, {"headers", "domains", "domain"},
		{"uptime-check", "doman", "domain"}, {"resolve-redirect", "host", ""}, {"ping", "prob", ""}, {"ping", "domain", ""}, {"ping", "", ""},
	} {
		t.Run(c.op+" "+c.name, func(t *testing.T) {
			op, _ := BySlug(c.op)
			if meant, ok := op.Slip(c.name); meant.Name != c.meant || ok != (c.meant != "") {
				t.Errorf("%v, %q, want %q", ok, meant.Name, c.meant)
			}
		})
	}
}

func TestCodes(t *testing.T) {
	seen := map[fault.Code]bool{}
	for _, i := range Codes() {
		if seen[i.Code] {
			t.Errorf("%s is in the table twice", i.Code)
		}
		seen[i.Code] = true
		if !strings.HasSuffix(i.Message, ".") || http.StatusText(i.Status) == "" || i.Status < 400 || !strings.HasSuffix(i.Remedy, ".") {
			t.Errorf("%s: status %d, message %q or remedy %q is not a sentence", i.Code, i.Status, i.Message, i.Remedy)
		}
		// An error that may be retried must say after how long. No other error may say that.
		if i.Retry != (i.After > 0) {
			t.Errorf("%s: retry %v, after %s", i.Code, i.Retry, i.After)
		}
		// An owed answer is the service's fault and may be retried. An error that uses up the
		// payment must not be retried.
		if i.Class == fault.Answer && i.Retry || i.Class == fault.Owed && (!i.Retry || i.Status < 500) {
			t.Errorf("%s is %s, with status %d and retry %v", i.Code, i.Class, i.Status, i.Retry)
		}
	}
}
