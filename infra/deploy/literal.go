package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// names returns the keys of a map, sorted.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// valuesIn returns values of the template's parameters, by name. source is the text of
// template.yaml, which refers to parameters. deployedText is the text of the same template
// after the CDK app has put literals in place of references. For each reference in
// template.yaml, valuesIn takes the literal from the same place of the deployed template. If
// that place has no literal, valuesIn takes nothing.
func valuesIn(source, deployedText []byte) (map[string]string, error) {
	var from yaml.Node
	if err := yaml.Unmarshal(source, &from); err != nil {
		return nil, fmt.Errorf("parse template.yaml: %w", err)
	}
	var to any
	if err := yaml.Unmarshal(deployedText, &to); err != nil { // JSON is YAML
		return nil, fmt.Errorf("parse what is deployed: %w", err)
	}
	found := literals{}
	if len(from.Content) > 0 {
		found.collect(from.Content[0], to)
	}
	return found, nil
}

// literals are values of parameters, by name.
type literals map[string]string

// collect compares a node of template.yaml with the node in the same place of the deployed
// template. It records the value of each parameter that it finds there.
func (l literals) collect(from *yaml.Node, to any) {
	name, intrinsic := strings.CutPrefix(from.Tag, "!")
	intrinsic = intrinsic && !strings.HasPrefix(name, "!") // !!str, for example, is a YAML tag and no intrinsic function
	if intrinsic && name == "Ref" {
		l.record(from.Value, to)
		return
	}
	if intrinsic {
		long, _ := to.(map[string]any)
		to = long["Fn::"+name]
	}
	switch from.Kind {
	case yaml.MappingNode:
		members, _ := to.(map[string]any)
		for i := 0; i+1 < len(from.Content); i += 2 {
			l.collect(from.Content[i+1], members[from.Content[i].Value])
		}
	case yaml.SequenceNode:
		items, _ := to.([]any)
		for i, item := range from.Content {
			if i < len(items) {
				l.collect(item, items[i])
			}
		}
	default: // a scalar cannot refer to a parameter, and the template has no aliases
	}
}

// record records a value for a parameter if the value is a literal.
func (l literals) record(parameter string, value any) {
	switch value := value.(type) {
	case string:
		l[parameter] = value
	case int, int64, float64, bool:
		l[parameter] = fmt.Sprint(value)
	}
}
