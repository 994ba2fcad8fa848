package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// deployment is a stack as CloudFormation creates it: a template after CloudFormation's SAM
// transform, with the values of its parameters.
type deployment struct {
	*testing.T
	template   document
	values     map[string]string
	identities map[string]string // the results of the method identity, by logical id
}

// deploy returns the stack that CloudFormation creates from a transformed template with the
// given values for parameters. The other parameters have their defaults.
func deploy(t *testing.T, template document, given map[string]string) deployment {
	t.Helper()
	values := map[string]string{}
	for name, p := range section(template, "Parameters") {
		if usual, ok := p.(document)["Default"]; ok {
			values[name] = fmt.Sprint(usual)
		}
	}
	for name, v := range given {
		if section(template, "Parameters")[name] != nil {
			values[name] = v
		}
	}
	return deployment{t, template, values, map[string]string{}}
}

// noValue is the pseudo parameter that removes a property from a template.
const noValue = "AWS::NoValue"

// value returns v with its intrinsic functions resolved. A value that only AWS knows is
// replaced by a text, which differs for each resource.
func (d deployment) value(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, 0, len(v))
		for _, item := range v {
			if item = d.value(item); item != noValue {
				list = append(list, item)
			}
		}
		return list
	case document:
		if name, of, ok := intrinsic(v); ok {
			return d.resolveIntrinsic(name, of)
		}
		members := document{}
		for name, of := range v {
			if of = d.value(of); of != noValue {
				members[name] = of
			}
		}
		return members
	}
	return v
}

// intrinsic returns the intrinsic function that an object stands for, and its argument.
func intrinsic(v document) (name string, argument any, ok bool) {
	for name, argument = range v {
		ok = len(v) == 1 && (name == "Ref" || strings.HasPrefix(name, "Fn::"))
	}
	return name, argument, ok
}

// resolveIntrinsic returns the value of an intrinsic function.
func (d deployment) resolveIntrinsic(name string, argument any) any {
	list, _ := argument.([]any)
	switch name {
	case "Ref":
		return d.ref(argument.(string))
	case "Fn::GetAtt":
		if text, ok := argument.(string); ok { // the CDK writes some attributes as one text, "Id.Name"
			return d.substitute("${" + text + "}")
		}
		return d.identity(list[0].(string)) + fmt.Sprint(list[1:])
	case "Fn::If":
		if d.isTrue(section(d.template, "Conditions")[list[0].(string)]) {
			return d.value(list[1])
		}
		return d.value(list[2])
	case "Fn::Join":
		return strings.Join(d.texts(list[1]), list[0].(string))
	case "Fn::Select":
		return d.texts(list[1])[int(list[0].(float64))]
	case "Fn::Split":
		return d.split(list)
	case "Fn::Sub":
		return d.substitute(argument)
	}
	d.Fatalf("%s is not known here", name)
	return nil
}

// texts resolves the items of a list and returns them as texts.
func (d deployment) texts(v any) (all []string) {
	for _, item := range d.value(v).([]any) {
		all = append(all, fmt.Sprint(item))
	}
	return all
}

// split returns the result of Fn::Split. A value that only AWS knows is split into six parts,
// because an ARN has six parts and Fn::Select selects one of them.
func (d deployment) split(list []any) (all []any) {
	of := fmt.Sprint(d.value(list[1]))
	for part := range strings.SplitSeq(of, list[0].(string)) {
		all = append(all, part)
	}
	for strings.HasPrefix(of, "AWS::") && len(all) < 6 {
		all = append(all, of)
	}
	return all
}

// ref returns the result of Ref for a name.
func (d deployment) ref(name string) string {
	if v, ok := d.values[name]; ok {
		return v
	}
	if strings.HasPrefix(name, "AWS::") {
		return name
	}
	return d.identity(name)
}

var placeholder = regexp.MustCompile(`\$\{([^!}]+)\}`)

// substitute returns the result of Fn::Sub. The argument of Fn::Sub is a text with
// placeholders, or a list: such a text, and a map with the values of some placeholders.
func (d deployment) substitute(argument any) string {
	text, own := argument, document{}
	if list, ok := argument.([]any); ok {
		text, own = list[0], list[1].(document)
	}
	return placeholder.ReplaceAllStringFunc(text.(string), func(found string) string {
		name := placeholder.FindStringSubmatch(found)[1]
		if v, ok := own[name]; ok {
			return fmt.Sprint(d.value(v))
		}
		if resource, attribute, ok := strings.Cut(name, "."); ok {
			return d.identity(resource) + fmt.Sprint([]any{attribute})
		}
		return d.ref(name)
	})
}

// isTrue reports whether a condition of the template is true.
func (d deployment) isTrue(condition any) bool {
	c, _ := condition.(document)
	for name, argument := range c {
		list, _ := argument.([]any)
		switch name {
		case "Condition":
			return d.isTrue(section(d.template, "Conditions")[argument.(string)])
		case "Fn::Equals":
			return gocmp.Equal(d.value(list[0]), d.value(list[1]))
		case "Fn::Not":
			return !d.isTrue(list[0])
		case "Fn::And":
			return !slices.ContainsFunc(list, func(c any) bool { return !d.isTrue(c) })
		case "Fn::Or":
			return slices.ContainsFunc(list, d.isTrue)
		}
	}
	d.Fatalf("%v is not a condition that is known here", condition)
	return false
}

// identity returns a text that identifies a physical resource. The text changes exactly when
// CloudFormation would replace the resource: when the logical id changes, or when a property
// changes that cannot be updated in place.
func (d deployment) identity(id string) string {
	if known, ok := d.identities[id]; ok {
		return known
	}
	resource, _ := section(d.template, "Resources")[id].(document)
	if resource == nil {
		d.Fatalf("there is no resource %s", id)
	}
	var fixed []any
	for _, path := range replacedBy(d.T, resource["Type"].(string)) {
		v := resource["Properties"]
		for _, name := range path {
			members, _ := d.value(v).(document)
			v = members[name]
		}
		fixed = append(fixed, d.value(v))
	}
	d.identities[id] = fmt.Sprintf("%s-%x", id, sha256.Sum256(must(json.Marshal(fixed))(d.T)))
	return d.identities[id]
}

// schemas caches the results of replacedBy, by type.
var schemas struct {
	sync.Mutex
	types map[string][][]string
}

// replacedBy returns the paths of the properties whose change replaces a resource of a type,
// according to the schemas that AWS publishes. The first call reads the schemas of all types
// in the template.
func replacedBy(t *testing.T, kind string) [][]string {
	t.Helper()
	schemas.Lock()
	defer schemas.Unlock()
	if schemas.types == nil {
		kinds := map[string]bool{}
		for _, r := range section(transformTemplate(t, saveTemplate(t, exampleTemplate(t))), "Resources") {
			kinds[r.(document)["Type"].(string)] = true
		}
		out := programs.Run(t, deployed.Tool(t, "replaced.py", slices.Sorted(maps.Keys(kinds))...))
		check(t, json.Unmarshal(out, &schemas.types))
	}
	paths, ok := schemas.types[kind]
	if !ok {
		t.Fatalf("nobody asked what replaces %s", kind)
	}
	return paths
}

// aliasVersions returns the version to which the alias of each function points, by the logical
// id of the function.
func (d deployment) aliasVersions() map[string]any {
	all := map[string]any{}
	for _, slug := range functionSlugs() {
		id := sam.LogicalID(slug)
		all[id] = d.value(properties(d.template, id+"Alias"+alias)["FunctionVersion"])
	}
	return all
}

// versionedProperties returns those properties of a function that belong to a version. If they
// are the same as in the last version, Lambda publishes no new version.
func (d deployment) versionedProperties(id string) any {
	p := maps.Clone(properties(d.template, id))
	delete(p, "ReservedConcurrentExecutions") // this property and Tags belong to no version
	delete(p, "Tags")
	return d.value(p)
}

// resources returns the values of the properties of all resources of a type, by logical id.
func (d deployment) resources(kind string) map[string]any {
	all := map[string]any{}
	for _, id := range ofType(d.template, kind) {
		all[id] = d.value(properties(d.template, id))
	}
	return all
}
