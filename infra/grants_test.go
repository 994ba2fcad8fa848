package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// keyForms are the forms of the keys in the table, as dynamodb:LeadingKeys has
// them, with what they are.
func keyForms() []string {
	forms := []string{
		"eip155:*",       // payments
		"purchase|*",     // purchases
		"cursor|*",       // how far the chain was read
		"rate|*",         // units of a client
		"rdap|bootstrap", // the registries' list
		"ready",          // a key that nothing has, for /ready
	}
	for _, o := range catalog.All() {
		forms = append(forms, slotForms(o.Slug)...)
	}
	return forms
}

// slotForms are the forms of the items with an operation's leases: the first, and
// those that a cap of more than 50 takes.
func slotForms(slug string) []string { return []string{"slots|" + slug, "slots|" + slug + "#*"} }

// on are actions on the table's items of a form.
func on(form string, actions ...string) (all []string) {
	for _, action := range actions {
		all = append(all, "dynamodb:"+action+" on Ledger.Arn of "+form)
	}
	return all
}

// TestPermissions lists by hand what each function may do: that what it is granted is
// what it uses (TestPermissionsUsedAreGranted) does not say that it should.
func TestPermissions(t *testing.T) {
	t.Parallel()
	for slug := range routesBySlug() {
		var want []string
		secrets := []string{"secretsmanager:GetSecretValue on FacilitatorSecretArn", "secretsmanager:GetSecretValue on FacilitatorFallbackSecretArn"}
		switch slug {
		case "discovery":
			want = on("rate|*", "UpdateItem")
		case "health":
			want = append(on("ready", "GetItem"), secrets...)
		case scheduled:
			for _, form := range []string{"eip155:*", "purchase|*", "cursor|*"} {
				want = append(want, on(form, "GetItem", "PutItem")...)
			}
			want = append(want, "dynamodb:Query on ${Ledger.Arn}/index/"+dynamo.IndexName)
			want = slices.Concat(want, on("ready", "GetItem"), secrets)
		default: // priced
			want = slices.Concat(on("eip155:*", "GetItem", "PutItem"), on("purchase|*", "GetItem", "PutItem"), on("rate|*", "UpdateItem"), secrets)
			for _, o := range catalog.All() {
				if o.Kind != catalog.SmokeTest && (slug == o.Slug || slug == slugMCP) {
					for _, form := range slotForms(o.Slug) {
						want = append(want, on(form, "GetItem", "UpdateItem")...)
					}
				}
			}
			if slug == "whois" || slug == "host-intel" || slug == slugMCP {
				want = append(want, on("rdap|bootstrap", "GetItem", "PutItem")...)
			}
		}
		slices.Sort(want)
		if d := cmp.Diff(want, granted(t, slug)); d != "" {
			t.Errorf("%s: actions (-want +template):\n%s", slug, d)
		}
	}
}

// granted are the actions that the template allows a function, each with what
// it is on, sorted.
func granted(t *testing.T, slug string) (all []string) {
	t.Helper()
	f := properties(written(t, nil), logicalID(slug))
	if f["Role"] != nil || f["ManagedPolicyArns"] != nil {
		t.Errorf("%s: permissions belong in Policies", slug)
	}
	policies, _ := f["Policies"].([]any)
	for _, policy := range policies {
		inline, _ := policy.(document)
		statements, _ := inline["Statement"].([]any)
		if len(inline) != 1 || len(statements) == 0 {
			t.Errorf("%s: %v is no inline statement; policy templates and managed policies are wider than needed", slug, policy)
		}
		for _, s := range statements {
			statement, _ := s.(document)
			// One that is there only with a secret.
			if choice, ok := statement["Fn::If"].([]any); ok {
				if choice[0] != "HasFacilitatorSecret" && choice[0] != "HasFallbackSecret" || !cmp.Equal(choice[2], any(document{"Ref": "AWS::NoValue"})) {
					t.Errorf("%s: statement %v", slug, statement)
				}
				statement, _ = choice[1].(document)
			}
			if statement["Effect"] != "Allow" {
				t.Errorf("%s: statement %v, want Allow", slug, statement)
			}
			all = append(all, allowed(t, slug, statement)...)
		}
	}
	slices.Sort(all)
	return all
}

// allowed are the actions of a statement, each with what it is on. One on the
// table's items says which.
func allowed(t *testing.T, slug string, statement document) (all []string) {
	t.Helper()
	forms, members := []string{""}, 3
	if condition, ok := statement["Condition"].(document); ok {
		// A request without keys would pass ForAllValues; none of the actions on
		// items can be sent without.
		keys, _ := condition["ForAllValues:StringLike"].(document)
		forms, members = nil, 4
		for _, form := range list(keys["dynamodb:LeadingKeys"]) {
			forms = append(forms, " of "+form)
		}
		if len(condition) != 1 || len(keys) != 1 || len(forms) == 0 {
			t.Errorf("%s: condition %v", slug, condition)
		}
	}
	if len(statement) != members {
		t.Errorf("%s: statement %v, want actions, a resource and nothing else but keys", slug, statement)
	}
	resource := onLedger(t, slug, statement["Resource"])
	for _, action := range list(statement["Action"]) {
		for _, on := range resource { // of one intrinsic function
			if members == 3 && on == "Ledger.Arn" {
				t.Errorf("%s: %s on any item of the table", slug, action)
			}
			for _, form := range forms {
				all = append(all, fmt.Sprint(action, " on ", on, form))
			}
		}
	}
	return all
}

// onLedger is a resource of a statement. What is on the table is on the stack's own,
// or on the same part of the one that LedgerTableName names.
func onLedger(t *testing.T, slug string, v any) document {
	t.Helper()
	resource, _ := v.(document)
	choice, ok := resource["Fn::If"].([]any)
	if !ok {
		return resource
	}
	own, _ := choice[1].(document)
	part := ""
	for _, text := range own {
		_, part, _ = strings.Cut(fmt.Sprint(text), "Ledger.Arn}")
	}
	other := document{"Fn::Sub": "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/${LedgerTableName}" + part}
	if len(choice) != 3 || choice[0] != "CreateLedger" || !cmp.Equal(choice[2], any(other)) {
		t.Errorf("%s: resource %v", slug, resource)
	}
	return own
}

// list is a YAML string or list of strings.
func list(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	var out []string
	items, _ := v.([]any)
	for _, item := range items {
		out = append(out, item.(string))
	}
	return out
}
