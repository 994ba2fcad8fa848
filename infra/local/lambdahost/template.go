package lambdahost

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Template is as much of a SAM template as hosting its functions needs.
type Template struct {
	Parameters map[string]Parameter `yaml:"Parameters"`
	Globals    struct {
		Function Properties `yaml:"Function"`
	} `yaml:"Globals"`
	Conditions map[string]yaml.Node `yaml:"Conditions"`
	Resources  map[string]Resource  `yaml:"Resources"`
}

// Parameter is a template parameter.
type Parameter struct {
	Type           string   `yaml:"Type"`
	Default        *string  `yaml:"Default"`
	AllowedPattern string   `yaml:"AllowedPattern"`
	AllowedValues  []string `yaml:"AllowedValues"`
	NoEcho         bool     `yaml:"NoEcho"`
	Description    string   `yaml:"Description"`
}

// Resource is a resource; its properties are read by type.
type Resource struct {
	Type       string    `yaml:"Type"`
	Properties yaml.Node `yaml:"Properties"`
}

// Properties are those of an AWS::Serverless::Function.
type Properties struct {
	CodeURI     string `yaml:"CodeUri"`
	Handler     string `yaml:"Handler"`
	Runtime     string `yaml:"Runtime"`
	Timeout     int    `yaml:"Timeout"` // seconds
	MemorySize  int    `yaml:"MemorySize"`
	Concurrency int    `yaml:"ReservedConcurrentExecutions"`
	Environment struct {
		Variables map[string]yaml.Node `yaml:"Variables"`
	} `yaml:"Environment"`
	Events map[string]struct {
		Type       string `yaml:"Type"`
		Properties struct {
			APIID  yaml.Node `yaml:"ApiId"`
			Method string    `yaml:"Method"`
			Path   string    `yaml:"Path"`
		} `yaml:"Properties"`
	} `yaml:"Events"`
}

const (
	typeFunction = "AWS::Serverless::Function"
	typeHTTPAPI  = "AWS::Serverless::HttpApi"
)

// FromTemplate reads functions, routes, time-outs and environments from a SAM
// template, so that the template itself is what is run.
//
// A function's task root is buildDir and the last element of its CodeUri. params
// holds template parameters, which are checked as CloudFormation checks them,
// and the names of resources that environments refer to, by logical id. extraEnv
// is added to every function's environment and wins. An intrinsic function that
// cannot be resolved is an error, and so is a parameter that the template lacks.
func FromTemplate(templatePath, buildDir string, params, extraEnv map[string]string) (Config, error) {
	t, err := ReadTemplate(templatePath)
	if err != nil {
		return Config{}, err
	}
	refs, faults := t.references(params)
	values := scope{refs, t.Conditions}
	var cfg Config
	for _, name := range t.FunctionNames() {
		f, routes, err := t.function(name, values)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
			continue
		}
		f.Dir = filepath.Join(buildDir, f.Dir)
		maps.Copy(f.Env, extraEnv)
		cfg.Functions = append(cfg.Functions, f)
		cfg.Routes = append(cfg.Routes, routes...)
	}
	if err := errors.Join(faults...); err != nil {
		return Config{}, fmt.Errorf("lambdahost: %s: %w", templatePath, err)
	}
	return cfg, nil
}

// ReadTemplate parses a template and resolves nothing.
func ReadTemplate(path string) (*Template, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("lambdahost: read template: %w", err)
	}
	var t Template
	if err := yaml.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("lambdahost: parse %s: %w", path, err)
	}
	return &t, nil
}

// FunctionNames are the logical ids of the functions, sorted.
func (t *Template) FunctionNames() []string {
	var names []string
	for name, r := range t.Resources {
		if r.Type == typeFunction {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// FunctionProperties are a function's properties with the globals beneath.
func (t *Template) FunctionProperties(name string) (Properties, error) {
	var p Properties
	r := t.Resources[name]
	if r.Type != typeFunction {
		return p, fmt.Errorf("no function %q", name)
	}
	if err := r.Properties.Decode(&p); err != nil {
		return p, err
	}
	g := t.Globals.Function
	if p.Handler == "" {
		p.Handler = g.Handler
	}
	if p.Runtime == "" {
		p.Runtime = g.Runtime
	}
	if p.Timeout == 0 {
		p.Timeout = g.Timeout
	}
	if p.MemorySize == 0 {
		p.MemorySize = g.MemorySize
	}
	variables := maps.Clone(g.Environment.Variables)
	if variables == nil {
		variables = make(map[string]yaml.Node)
	}
	maps.Copy(variables, p.Environment.Variables)
	p.Environment.Variables = variables
	return p, nil
}

// pseudo are the parameters that CloudFormation has of itself, with the value
// that params may change.
func pseudo() map[string]string { return map[string]string{"AWS::StackName": "local"} }

// references is what !Ref can resolve to: every parameter, pseudo parameters,
// and the resources that params names.
func (t *Template) references(params map[string]string) (map[string]string, []error) {
	refs := pseudo()
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
		if err := p.check(value); err != nil {
			faults = append(faults, fmt.Errorf("parameter %s: %w", name, err))
		}
		refs[name] = value
	}
	for name, value := range params {
		_, isParam := t.Parameters[name]
		_, isResource := t.Resources[name]
		_, isPseudo := pseudo()[name]
		switch {
		case isResource, isPseudo:
			refs[name] = value
		case !isParam:
			faults = append(faults, fmt.Errorf("the template has no parameter or resource %q", name))
		}
	}
	return refs, faults
}

// check says what CloudFormation would say of a value.
func (p Parameter) check(value string) error {
	if len(p.AllowedValues) > 0 && !slices.Contains(p.AllowedValues, value) {
		return fmt.Errorf("must be one of %s", strings.Join(p.AllowedValues, ", "))
	}
	pattern, err := regexp.Compile("^(?:" + p.AllowedPattern + ")$")
	if err != nil {
		return fmt.Errorf("AllowedPattern: %w", err)
	}
	if p.AllowedPattern != "" && !pattern.MatchString(value) {
		return fmt.Errorf("does not match %s", p.AllowedPattern)
	}
	return nil
}

// function reads one function; Dir is its slug.
func (t *Template) function(name string, values scope) (Function, []Route, error) {
	p, err := t.FunctionProperties(name)
	if err != nil {
		return Function{}, nil, err
	}
	if !strings.HasPrefix(p.Runtime, "provided.") {
		return Function{}, nil, fmt.Errorf("runtime %q has no bootstrap", p.Runtime)
	}
	f := Function{
		Name: name, Dir: filepath.Base(p.CodeURI), Handler: p.Handler,
		Timeout: time.Duration(p.Timeout) * time.Second, Memory: p.MemorySize, Concurrency: p.Concurrency,
		Env: make(map[string]string),
	}
	var faults []error
	for variable, node := range p.Environment.Variables {
		value, err := values.resolve(&node)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", variable, err))
		}
		f.Env[variable] = value
	}
	var routes []Route
	for event, e := range p.Events {
		if e.Type != "HttpApi" {
			continue // schedules and the like are invoked by hand
		}
		if err := t.isAPI(&e.Properties.APIID); err != nil {
			faults = append(faults, fmt.Errorf("event %s: %w", event, err))
		}
		key := "$default" // SAM: neither path nor method
		if e.Properties.Path != "" || e.Properties.Method != "" {
			key = strings.ToUpper(e.Properties.Method) + " " + e.Properties.Path
		}
		if strings.Contains(key, "{") {
			faults = append(faults, fmt.Errorf("event %s: path variables are not supported", event))
		}
		routes = append(routes, Route{Key: key, Function: name})
	}
	slices.SortFunc(routes, func(a, b Route) int { return strings.Compare(a.Key, b.Key) })
	return f, routes, errors.Join(faults...)
}

// isAPI checks that an event names an API of the template itself.
func (t *Template) isAPI(node *yaml.Node) error {
	if node.Tag != "!Ref" || t.Resources[node.Value].Type != typeHTTPAPI {
		return errors.New("ApiId must be a !Ref to an AWS::Serverless::HttpApi of the template")
	}
	return nil
}
