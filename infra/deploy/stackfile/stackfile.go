// Package stackfile reads the file of a stack, which describes one deployment: every parameter
// that is not secret, where the secrets are, and who is notified. The file is a configuration
// file of the SAM CLI (sam deploy --config-file). It has one more table, which the SAM CLI
// ignores and the CDK app reads.
package stackfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Folder is the folder of the stack files, below the root of a checkout.
const Folder = "infra/stacks"

// Toolchains that can deploy a stack.
const (
	SAM = "sam"
	CDK = "cdk"
)

// maxFile limits the size of a stack file, in bytes. It is far larger than any real stack
// file.
const maxFile = 256 << 10

// File is what a stack's file says.
type File struct {
	Name       string // the file's name without the extension: the value of STACK in "make deploy STACK=…"
	Path       string
	Stack      string // the name of the stack in CloudFormation
	Region     string
	Profile    string            // the AWS profile with the credentials; empty means those of the environment
	Parameters map[string]string // the values of the template's parameters
	Toolchain  string            // SAM or CDK
	// Allow lists the changes that the file permits and that would otherwise be refused. Each
	// is a text that a refused deployment prints for this list.
	Allow []string
	// Settings are the CDK app's settings by name, with JSON values.
	Settings map[string]any
}

// document is the structure of the file. The field Own is the table that the SAM CLI ignores.
// An unknown key in that table is an error. The SAM CLI's parameters may have any keys.
type document struct {
	Version any                `toml:"version"`
	Default map[string]command `toml:"default"`
	Own     ownTable           `toml:"hostfacts"`
}

type command struct {
	Parameters map[string]any `toml:"parameters"`
}

type ownTable struct {
	Toolchain string         `toml:"toolchain"`
	Allow     []string       `toml:"allow"`
	Settings  map[string]any `toml:"cdk"`
}

// validName matches a valid name of a stack file. Such a name cannot lead to a file outside
// Folder.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,127}$`)

// Path returns the path of a stack file in a checkout.
func Path(root, name string) (string, error) {
	if !validName.MatchString(name) {
		return "", errors.New("a stack's name has letters, digits and hyphens, as its file in " + Folder + " has before .toml")
	}
	return filepath.Join(root, filepath.FromSlash(Folder), name+".toml"), nil
}

// Read reads a stack file in a checkout. It does not check the values.
func Read(root, name string) (File, error) {
	path, err := Path(root, name)
	if err != nil {
		return File{}, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return File{}, fmt.Errorf("there is no %s: copy %s to it and fill it in", relativePath(name), relativePath("example"))
	}
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", relativePath(name), err)
	}
	f, err := parse(text)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", relativePath(name), err)
	}
	f.Name, f.Path = name, path
	return f, nil
}

// relativePath returns the path of a stack file relative to the root of the checkout.
func relativePath(name string) string { return Folder + "/" + name + ".toml" }

func parse(text []byte) (File, error) {
	if len(text) > maxFile {
		return File{}, fmt.Errorf("it has %d bytes, and %d is the most", len(text), maxFile)
	}
	var d document
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return File{}, withPosition(err)
	}
	deploy, found := d.Default["deploy"]
	if !found {
		return File{}, errors.New("it has no table [default.deploy.parameters], which the SAM CLI reads")
	}
	f := File{Toolchain: d.Own.Toolchain, Allow: d.Own.Allow}
	var faults []error
	fault := func(err error) { faults = append(faults, err) }
	f.Stack = requiredText(deploy.Parameters, "stack_name", fault)
	f.Region = requiredText(deploy.Parameters, "region", fault)
	f.Profile, _ = deploy.Parameters["profile"].(string)
	f.Parameters = parameterOverrides(deploy.Parameters["parameter_overrides"], fault)
	if f.Toolchain != SAM && f.Toolchain != CDK {
		fault(fmt.Errorf("toolchain in [hostfacts] must be %q or %q", SAM, CDK))
	}
	settings, err := asJSON(d.Own.Settings)
	if err != nil {
		fault(err)
	}
	f.Settings = settings
	return f, errors.Join(faults...)
}

// withPosition adds the position in the file to an error of the decoder.
func withPosition(err error) error {
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		var unknown []string
		for _, e := range strict.Errors {
			row, _ := e.Position()
			unknown = append(unknown, fmt.Sprintf("%s in line %d is not known", strings.Join(e.Key(), "."), row))
		}
		return errors.New(strings.Join(unknown, "\n"))
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, column := e.Position()
		return fmt.Errorf("line %d, column %d: %w", row, column, err)
	}
	return err
}

// requiredText returns one of the SAM CLI's parameters, by its key. The SAM CLI needs this
// parameter, so requiredText reports a fault if it is missing.
func requiredText(parameters map[string]any, key string, fault func(error)) string {
	text, _ := parameters[key].(string)
	if text == "" {
		fault(fmt.Errorf("[default.deploy.parameters] has no %s", key))
	}
	return text
}

// parameterOverrides returns the values of the template's parameters by name. v must be a
// table, because only a table is unambiguous. The SAM CLI also accepts a string or a list, and
// splits it at spaces and quotes. Here, these two forms are faults.
func parameterOverrides(v any, fault func(error)) map[string]string {
	table, ok := v.(map[string]any)
	if !ok {
		fault(errors.New("the parameters must be a table, [default.deploy.parameters.parameter_overrides], with Name = \"value\" in each line"))
	}
	values := map[string]string{}
	for parameter, value := range table {
		switch value := value.(type) {
		case string:
			values[parameter] = value
			if isChangedBySAM(value) {
				fault(fmt.Errorf("%s has a quotation mark around it or a backslash before a quotation mark or a space, which the SAM CLI takes away", parameter))
			}
		case int64:
			values[parameter] = strconv.FormatInt(value, 10)
		default:
			fault(fmt.Errorf("%s must be a text or a whole number", parameter))
		}
	}
	return values
}

// isChangedBySAM reports whether the SAM CLI would change a value before it passes the value
// on.
func isChangedBySAM(value string) bool {
	quoted := len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0]
	escaped := strings.Contains(value, `\"`) || strings.Contains(value, `\'`) || strings.Contains(value, `\ `)
	return quoted || escaped
}

// asJSON converts the values of a TOML table to those that a JSON decoder returns, because the
// CDK app reads its context from JSON.
func asJSON(table map[string]any) (map[string]any, error) {
	text, err := json.Marshal(table)
	if err != nil {
		return nil, fmt.Errorf("[hostfacts.cdk]: %w", err)
	}
	values := map[string]any{}
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("[hostfacts.cdk]: %w", err)
	}
	return values, nil
}
