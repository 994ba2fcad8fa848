package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// on are actions on the table's items with keys of a form, as dynamodb:LeadingKeys has
// them.
func on(form string, actions ...string) (all []string) {
	for _, action := range actions {
		all = append(all, "dynamodb:"+action+" on Ledger.Arn of "+form)
	}
	return all
}

// slots are actions on the item with an operation's leases.
func slots(o catalog.Operation, actions ...string) (all []string) {
	if o.Kind == catalog.SmokeTest {
		return nil
	}
	return on("slots|"+o.Slug, actions...)
}

// may lists by hand what each function may do: that what it is granted is what it uses
// (TestPermissionsUsedAreGranted) does not say that it should.
func may(slug string) (all []string) {
	payments, purchases := on("eip155:*", "GetItem", "PutItem"), on("purchase|*", "GetItem", "PutItem")
	rates := on("rate|*", "UpdateItem") // units of a client
	ready := on("ready", "GetItem")     // a key that nothing has, for /ready
	secrets := []string{"secretsmanager:GetSecretValue on FacilitatorSecretArn", "secretsmanager:GetSecretValue on FacilitatorFallbackSecretArn"}
	switch slug {
	case "discovery":
		all = rates
	case "health":
		all = slices.Concat(ready, rates, secrets)
	case scheduled:
		all = slices.Concat(payments, on("purchase|*", "GetItem"), on("cursor|*", "GetItem", "PutItem"), ready, secrets) // how far the chain was read
		all = append(all, "dynamodb:Query on ${Ledger.Arn}/index/"+dynamo.IndexName)
	default: // priced
		all = slices.Concat(payments, purchases, rates, secrets)
		for _, o := range catalog.All() {
			if slug == o.Slug || slug == slugMCP {
				all = append(all, slots(o, "GetItem", "UpdateItem")...)
			}
		}
		if slug == "whois" || slug == "host-intel" || slug == slugMCP {
			all = append(all, on("rdap|bootstrap", "GetItem", "PutItem")...) // the registries' list
		}
	}
	slices.Sort(all)
	return all
}

// statement is what grants a permission and nothing else. What is on the table is on the
// stack's own, or on the same part of the one that LedgerTableName names; a secret is
// there if it is named.
func statement(permission string) document {
	const other = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/${LedgerTableName}"
	action, what, _ := strings.Cut(permission, " on ")
	_, form, keyed := strings.Cut(what, " of ")
	_, part, indexed := strings.Cut(what, "${Ledger.Arn}")
	s := document{"Effect": "Allow", "Action": action}
	switch {
	case keyed:
		own := document{"Fn::GetAtt": []any{"Ledger", "Arn"}}
		s["Resource"] = document{"Fn::If": []any{"CreateLedger", own, document{"Fn::Sub": other}}}
		// A request without keys would pass ForAllValues; none of the actions on
		// items can be sent without.
		s["Condition"] = document{"ForAllValues:StringLike": document{"dynamodb:LeadingKeys": form}}
	case indexed:
		s["Resource"] = document{"Fn::If": []any{"CreateLedger", document{"Fn::Sub": what}, document{"Fn::Sub": other + part}}}
	default:
		s["Resource"] = document{"Ref": what}
		given := map[string]string{"FacilitatorSecretArn": "HasFacilitatorSecret", "FacilitatorFallbackSecretArn": "HasFallbackSecret"}[what]
		return document{"Fn::If": []any{given, s, document{"Ref": "AWS::NoValue"}}}
	}
	return s
}

// TestPermissions: the template allows each function what it may do, by statements of
// the template: policy templates and AWS's managed policies are wider than needed.
func TestPermissions(t *testing.T) {
	t.Parallel()
	text := func(v any) string { return string(must(json.Marshal(v))(t)) }
	for slug := range routesBySlug() {
		f := properties(written(t, nil), logicalID(slug))
		var want, got []string
		for _, permission := range may(slug) {
			want = append(want, text(statement(permission)))
		}
		if f["Role"] != nil {
			t.Errorf("%s: a role of its own has other permissions", slug)
		}
		for _, s := range statements(t, f["Policies"]) {
			actions := s.(document)["Action"]
			keys := section(section(s.(document), "Condition"), "ForAllValues:StringLike")["dynamodb:LeadingKeys"]
			for _, action := range list(actions) {
				for _, key := range list(keys) {
					got = append(got, strings.NewReplacer(text(actions), text(action), text(keys), text(key)).Replace(text(s)))
				}
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: statements (-want +template):\n%s", slug, d)
		}
	}
}

// statements are those of a function's policies, each of which is a list of them, or a
// managed policy of the template.
func statements(t *testing.T, policies any) (all []any) {
	t.Helper()
	for _, p := range policies.([]any) {
		own := p.(document)
		if ref, shared := own["Ref"].(string); shared {
			own = section(properties(written(t, nil), ref), "PolicyDocument")
			delete(own, "Version")
		}
		statements, _ := own["Statement"].([]any)
		if len(own) != 1 || statements == nil {
			t.Errorf("%v has no list of statements", p)
		}
		all = append(all, statements...)
	}
	return all
}

// list is a value, or a list of values.
func list(v any) []any {
	if items, ok := v.([]any); ok {
		return items
	}
	return []any{v}
}
