// Package sam reads a SAM template, as far as this is needed to run the template's functions
// outside AWS. Like CloudFormation, it also checks the values that somebody gives to the
// template's parameters.
package sam

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Template is a parsed template. Its intrinsic functions are not resolved.
type Template struct {
	Text       []byte               `yaml:"-"` // the whole file
	Parameters map[string]Parameter `yaml:"Parameters"`
	Globals    struct {
		Function Properties `yaml:"Function"`
	} `yaml:"Globals"`
	Rules      map[string]Rule      `yaml:"Rules"`
	Conditions map[string]yaml.Node `yaml:"Conditions"`
	Resources  map[string]Resource  `yaml:"Resources"`
}

// Rule is a rule of a template: a condition on several parameters together. CloudFormation
// checks rules before it changes anything.
type Rule struct {
	RuleCondition yaml.Node `yaml:"RuleCondition"` // if RuleCondition is missing, the rule always applies
	Assertions    []struct {
		Assert      yaml.Node `yaml:"Assert"`
		Description string    `yaml:"AssertDescription"`
	} `yaml:"Assertions"`
}

// Parameter is a parameter of a template.
type Parameter struct {
	Type           string   `yaml:"Type"`
	Default        *string  `yaml:"Default"`
	AllowedPattern string   `yaml:"AllowedPattern"`
	AllowedValues  []string `yaml:"AllowedValues"`
	MaxLength      *int     `yaml:"MaxLength"`
	MinValue       *float64 `yaml:"MinValue"`
	MaxValue       *float64 `yaml:"MaxValue"`
	NoEcho         bool     `yaml:"NoEcho"`
	Description    string   `yaml:"Description"`
}

// Resource is a resource of a template. The form of its properties depends on its type, so
// they are decoded later.
type Resource struct {
	Type       string    `yaml:"Type"`
	Properties yaml.Node `yaml:"Properties"`
}

// Properties are the properties of an AWS::Serverless::Function.
type Properties struct {
	CodeURI     string `yaml:"CodeUri"`
	Handler     string `yaml:"Handler"`
	Runtime     string `yaml:"Runtime"`
	Timeout     int    `yaml:"Timeout"` // seconds
	MemorySize  int    `yaml:"MemorySize"`
	Environment struct {
		Variables map[string]yaml.Node `yaml:"Variables"`
	} `yaml:"Environment"`
	Events map[string]struct {
		Type       string `yaml:"Type"`
		Properties struct {
			Method string `yaml:"Method"`
			Path   string `yaml:"Path"`
		} `yaml:"Properties"`
	} `yaml:"Events"`
}

// Function is a function of a template, with all of its intrinsic functions resolved.
type Function struct {
	Name    string // the function's logical id
	Slug    string // the last element of the CodeUri
	Handler string
	Timeout time.Duration
	Memory  int // MB
	Env     map[string]string
	Routes  []string // the routes in the HTTP API, such as "ANY /path" and "$default"; sorted
}

// Read parses a template.
func Read(file string) (*Template, error) {
	text, err := os.ReadFile(file) // #nosec G304 -- to read a file that the caller names is the purpose
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	t := Template{Text: text}
	if err := yaml.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	return &t, nil
}

// Check returns an error if CloudFormation would refuse a value for the parameter.
func (p Parameter) Check(value string) error {
	if len(p.AllowedValues) > 0 && !slices.Contains(p.AllowedValues, value) {
		return fmt.Errorf("must be one of %s", strings.Join(p.AllowedValues, ", "))
	}
	if ok, err := regexp.MatchString("^(?:"+p.AllowedPattern+")$", value); p.AllowedPattern != "" && !ok {
		return errors.Join(fmt.Errorf("does not match %s", p.AllowedPattern), err)
	}
	if p.MaxLength != nil && len(value) > *p.MaxLength {
		return fmt.Errorf("has %d characters, and %d is the most", len(value), *p.MaxLength)
	}
	if p.Type != "Number" {
		return nil
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || p.MinValue != nil && n < *p.MinValue || p.MaxValue != nil && n > *p.MaxValue {
		return errors.New("is not a number within its bounds")
	}
	return nil
}

// FunctionNames returns the logical ids of the functions, sorted.
func (t *Template) FunctionNames() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.Resources)), func(name string) bool {
		return t.Resources[name].Type != "AWS::Serverless::Function"
	})
}

// FunctionProperties returns the properties of a function. Properties that the function does
// not set come from the template's globals.
func (t *Template) FunctionProperties(name string) (Properties, error) {
	p := t.Globals.Function
	p.Environment.Variables = maps.Clone(p.Environment.Variables)
	r := t.Resources[name]
	err := r.Properties.Decode(&p) // this adds the function's variables to those of the globals
	return p, err
}

// Functions resolves every function. params has the values of the template's parameters, by
// name. Functions checks these values as CloudFormation does. If an environment variable refers
// to a resource, params must have the resource's name, under its logical id. Functions returns
// an error if it cannot resolve an intrinsic function, or if a key of params is not in the
// template. The error lists all faults.
func (t *Template) Functions(params map[string]string) ([]Function, error) {
	refs, faults := t.references(params)
	values := scope{refs, t.Conditions}
	var all []Function
	for _, name := range t.FunctionNames() {
		f, err := t.function(name, values)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		all = append(all, f)
	}
	return all, errors.Join(faults...)
}

// Broken checks the template's rules. It returns the descriptions of the assertions that are
// false with the given parameters. params has the same form as for Functions. Unlike
// Functions, Broken does not check the value of each parameter.
func (t *Template) Broken(params map[string]string) (descriptions []string, err error) {
	refs, _ := t.references(params)
	values := scope{refs, t.Conditions}
	for _, name := range slices.Sorted(maps.Keys(t.Rules)) {
		rule := t.Rules[name]
		if !rule.RuleCondition.IsZero() {
			applies, err := values.isTrue(&rule.RuleCondition)
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", name, err)
			}
			if !applies {
				continue
			}
		}
		for _, a := range rule.Assertions {
			holds, err := values.isTrue(&a.Assert)
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", name, err)
			}
			if !holds {
				descriptions = append(descriptions, a.Description)
			}
		}
	}
	return descriptions, nil
}

// references returns the values that !Ref can have. The keys are the names of the parameters,
// the keys of params, and AWS::StackName. references also returns the faults of params.
func (t *Template) references(params map[string]string) (map[string]string, []error) {
	const stackName = "AWS::StackName"
	refs := map[string]string{stackName: "local"}
	var faults []error
	for name, p := range t.Parameters {
		value, given := params[name]
		if !given {
			if p.Default == nil {
				faults = append(faults, fmt.Errorf("parameter %s has no default and is not given", name))
				continue
			}
			value = *p.Default
		}
		if err := p.Check(value); err != nil {
			faults = append(faults, fmt.Errorf("parameter %s: %w", name, err))
		}
		refs[name] = value
	}
	for name, value := range params {
		_, isParameter := t.Parameters[name]
		_, isResource := t.Resources[name]
		if !isParameter && !isResource && name != stackName {
			faults = append(faults, fmt.Errorf("the template has no parameter or resource %q", name))
		}
		refs[name] = value
	}
	return refs, faults
}

func (t *Template) function(name string, values scope) (Function, error) {
	p, err := t.FunctionProperties(name)
	if err != nil {
		return Function{}, err
	}
	if !strings.HasPrefix(p.Runtime, "provided.") {
		return Function{}, fmt.Errorf("runtime %q has no bootstrap", p.Runtime)
	}
	f := Function{
		Name:    name,
		Slug:    path.Base(p.CodeURI),
		Handler: p.Handler,
		Timeout: time.Duration(p.Timeout) * time.Second,
		Memory:  p.MemorySize,
		Env:     make(map[string]string),
	}
	var faults []error
	for variable, node := range p.Environment.Variables {
		if f.Env[variable], err = values.resolve(&node); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", variable, err))
		}
	}
	for _, e := range p.Events {
		if e.Type != "HttpApi" {
			continue // other events, such as those of a schedule, have no route: outside AWS, a person sends them
		}
		key := "$default" // SAM's default for an event without path and method
		if e.Properties.Path != "" || e.Properties.Method != "" {
			key = strings.ToUpper(e.Properties.Method) + " " + e.Properties.Path
		}
		f.Routes = append(f.Routes, key)
	}
	slices.Sort(f.Routes)
	return f, errors.Join(faults...)
}

// scope has the values and conditions that intrinsic functions refer to.
type scope struct {
	refs       map[string]string
	conditions map[string]yaml.Node
}

// resolve returns the value of a node. The node must be a scalar, a !Ref, or an !If with
// branches that can be resolved in the same way.
func (s scope) resolve(node *yaml.Node) (string, error) {
	switch {
	case node.Tag == "!If" && len(node.Content) == 3:
		condition, ok := s.conditions[node.Content[0].Value]
		holds, err := s.isTrue(&condition)
		switch {
		case !ok:
			return "", fmt.Errorf("line %d: there is no condition %s", node.Line, node.Content[0].Value)
		case err != nil:
			return "", err
		case holds:
			return s.resolve(node.Content[1])
		}
		return s.resolve(node.Content[2])
	case node.Kind != yaml.ScalarNode:
		return "", fmt.Errorf("line %d: only scalars, !Ref and !If can be resolved here", node.Line)
	case node.Tag == "!Ref":
		value, ok := s.refs[node.Value]
		if !ok {
			return "", fmt.Errorf("line %d: !Ref %s cannot be resolved", node.Line, node.Value)
		}
		return value, nil
	case strings.HasPrefix(node.Tag, "!") && !strings.HasPrefix(node.Tag, "!!"):
		return "", fmt.Errorf("line %d: %s cannot be resolved here", node.Line, node.Tag)
	}
	return node.Value, nil
}

// isTrue reports whether a condition holds.
func (s scope) isTrue(node *yaml.Node) (bool, error) {
	switch {
	case node.Tag == "!Not" && len(node.Content) == 1:
		holds, err := s.isTrue(node.Content[0])
		return !holds, err
	case node.Tag == "!Equals" && len(node.Content) == 2:
		left, err1 := s.resolve(node.Content[0])
		right, err2 := s.resolve(node.Content[1])
		return left == right, errors.Join(err1, err2)
	case node.Tag == "!Or":
		return s.anyIs(node.Content, true)
	case node.Tag == "!And":
		differs, err := s.anyIs(node.Content, false)
		return !differs, err
	}
	return false, fmt.Errorf("line %d: the condition %s cannot be resolved here", node.Line, node.Tag)
}

// anyIs reports whether at least one of the conditions has the result want.
func (s scope) anyIs(conditions []*yaml.Node, want bool) (bool, error) {
	found := false
	for _, c := range conditions {
		holds, err := s.isTrue(c)
		if err != nil {
			return false, err
		}
		found = found || holds == want
	}
	return found, nil
}

// The slugs of the functions that do not belong to an operation of the catalog.
const (
	Discovery = "discovery"
	Health    = "health"
	MCP       = "mcp"
	Reconcile = "reconcile"
)

// LogicalID returns the logical id of a function in the template: the slug in PascalCase,
// followed by "Function".
func LogicalID(slug string) string { return Pascal(slug) + "Function" }

// Pascal returns a name with hyphens in PascalCase.
func Pascal(name string) string {
	var id strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		id.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return id.String()
}
