package stackfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// Sizes of a function's environment.
const (
	// EnvironmentLimit is Lambda's limit in bytes for all names and values together, as JSON.
	EnvironmentLimit = 4096
	// HiddenRoom is the size, in bytes, that Check assumes for the value of each hidden
	// parameter. The real length is not known.
	HiddenRoom = 128
)

// maxNamedVariables is how many variables an error names if an environment is too large. The
// error names those that take the most bytes.
const maxNamedVariables = 5

// placeholder is the text in infra/stacks/example.toml that stands for a value that the reader
// must fill in.
const placeholder = "…"

// Check checks the file against the template, to find faults before CloudFormation and Lambda
// do. The error lists every fault.
func (f File) Check(t *sam.Template) error {
	faults := f.parameterFaults(t)
	if len(faults) == 0 { // otherwise a rule could report the same fault again
		faults = f.combinedFaults(t)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%s has %d fault(s):\n%w", relativePath(f.Name), len(faults), errors.Join(faults...))
	}
	return nil
}

// parameterFaults returns the faults of single parameters.
func (f File) parameterFaults(t *sam.Template) (faults []error) {
	for _, name := range slices.Sorted(maps.Keys(f.Parameters)) {
		if p, known := t.Parameters[name]; !known {
			faults = append(faults, unknownParameter(name, t))
		} else if p.NoEcho {
			faults = append(faults, hiddenParameter(name))
		} else if strings.Contains(f.Parameters[name], placeholder) {
			faults = append(faults, fmt.Errorf("%s is not filled in", name))
		} else if err := p.Check(f.Parameters[name]); err != nil {
			faults = append(faults, fmt.Errorf("%s %w", name, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Settings)) {
		if text, _ := f.Settings[name].(string); f.Toolchain == CDK && strings.Contains(text, placeholder) {
			faults = append(faults, fmt.Errorf("%s is not filled in", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Parameters)) {
		p := t.Parameters[name]
		if _, misplaced := f.Settings[name]; misplaced {
			faults = append(faults, fmt.Errorf("%s is a parameter of the template: it belongs in [default.deploy.parameters.parameter_overrides]", name))
		}
		if _, given := f.Parameters[name]; given || p.NoEcho {
			continue
		}
		usual := "which the template has no default for"
		if p.Default != nil {
			usual = fmt.Sprintf("whose default is %q", *p.Default)
		}
		faults = append(faults, fmt.Errorf("%s is missing, %s: a stack keeps the old value of a parameter that is not given, so the file must have every parameter", name, usual))
	}
	return faults
}

// unknownParameter returns an error for a parameter that the template does not have.
func unknownParameter(name string, t *sam.Template) error {
	for _, known := range slices.Sorted(maps.Keys(t.Parameters)) {
		if strings.EqualFold(name, known) || catalog.OneEdit(name, known) {
			return fmt.Errorf("%s is no parameter of template.yaml: did you mean %s?", name, known)
		}
	}
	return fmt.Errorf("%s is no parameter of template.yaml", name)
}

// hiddenParameter returns an error for a parameter that is secret.
func hiddenParameter(name string) error {
	secret := "FacilitatorSecretArn"
	if strings.HasPrefix(name, "FacilitatorFallback") {
		secret = "FacilitatorFallbackSecretArn"
	}
	return fmt.Errorf("%s is hidden (NoEcho), but everybody who can read this file would see it: remove it here, and put it in the secret that %s names (make secret)", name, secret)
}

// combinedFaults returns the faults that concern several parameters together.
func (f File) combinedFaults(t *sam.Template) (faults []error) {
	values := maps.Clone(f.Parameters)
	broken, err := t.Broken(values)
	if err != nil {
		faults = append(faults, err)
	}
	for _, description := range broken {
		faults = append(faults, errors.New(description))
	}
	if err := f.checkEnvironment(t); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// variable is a variable in a function's environment. The field bytes is how many bytes of
// EnvironmentLimit the variable uses.
type variable struct {
	name  string
	bytes int
}

// checkEnvironment returns an error if the environment of a function exceeds EnvironmentLimit.
// The error is about the function with the largest environment.
func (f File) checkEnvironment(t *sam.Template) error {
	values := maps.Clone(f.Parameters)
	values["AWS::StackName"] = f.Stack
	const suffix = "-Ledger-ABCDEFGHIJKLM" // as long as the suffix of a table name that CloudFormation generates
	values["Ledger"] = f.Stack + suffix
	functions, err := t.Functions(values)
	if err != nil {
		return fmt.Errorf("the functions' environment: %w", err)
	}
	var most int
	var of string
	var variables []variable
	for _, function := range functions {
		concealed, err := concealedIn(t, function.Name)
		if err != nil {
			return err
		}
		if all, total := measure(function.Env, concealed); total > most {
			most = total
			of = function.Name
			variables = all
		}
	}
	if most > EnvironmentLimit {
		return tooLarge(of, variables, most)
	}
	return nil
}

// concealedIn reports, for each variable of a function's environment, whether its value comes
// from a hidden parameter.
func concealedIn(t *sam.Template, function string) (map[string]bool, error) {
	p, err := t.FunctionProperties(function)
	concealed := map[string]bool{}
	for name, node := range p.Environment.Variables {
		concealed[name] = node.Tag == "!Ref" && t.Parameters[node.Value].NoEcho
	}
	return concealed, err
}

// measure returns the size of an environment as Lambda counts it: as JSON without spaces. It
// also returns the variables, the largest first. A concealed variable counts as if its value
// had HiddenRoom bytes.
func measure(environment map[string]string, concealed map[string]bool) (all []variable, total int) {
	total = len("{}") - len(",") // the loop adds a comma for each variable, but the last has none
	for name, value := range environment {
		if concealed[name] {
			value = strings.Repeat("x", HiddenRoom)
		}
		v := variable{name, len(jsonString(name)) + len(":") + len(jsonString(value)) + len(",")}
		all = append(all, v)
		total += v.bytes
	}
	slices.SortFunc(all, func(a, b variable) int {
		if a.bytes != b.bytes {
			return b.bytes - a.bytes
		}
		return strings.Compare(a.name, b.name)
	})
	return all, total
}

// jsonString returns a text as a JSON string.
func jsonString(text string) []byte {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return []byte(text) // cannot happen: a string can always be encoded
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

func tooLarge(function string, all []variable, total int) error {
	var names []string
	for _, v := range all[:min(maxNamedVariables, len(all))] {
		names = append(names, fmt.Sprintf("%s %d", v.name, v.bytes))
	}
	return fmt.Errorf("the environment of %s has %d bytes, and Lambda takes %d at most. The largest variables: %s. Each hidden parameter is counted with %d bytes",
		function, total, EnvironmentLimit, strings.Join(names, ", "), HiddenRoom)
}
