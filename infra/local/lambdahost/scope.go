package lambdahost

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// scope is what intrinsic functions of a template resolve to.
type scope struct {
	refs       map[string]string
	conditions map[string]yaml.Node
}

// resolve is the value of an environment variable: a scalar, a !Ref, or an !If of
// such.
func (s scope) resolve(node *yaml.Node) (string, error) {
	if node.Tag == "!If" && node.Kind == yaml.SequenceNode && len(node.Content) == 3 {
		condition, ok := s.conditions[node.Content[0].Value]
		if !ok {
			return "", fmt.Errorf("line %d: there is no condition %s", node.Line, node.Content[0].Value)
		}
		yes, err := s.holds(&condition)
		if err != nil {
			return "", err
		}
		if yes {
			return s.resolve(node.Content[1])
		}
		return s.resolve(node.Content[2])
	}
	if node.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("line %d: only scalars, !Ref and !If can be resolved here", node.Line)
	}
	if node.Tag == "!Ref" {
		value, ok := s.refs[node.Value]
		if !ok {
			return "", fmt.Errorf("line %d: !Ref %s cannot be resolved", node.Line, node.Value)
		}
		return value, nil
	}
	if strings.HasPrefix(node.Tag, "!") && !strings.HasPrefix(node.Tag, "!!") {
		return "", fmt.Errorf("line %d: %s cannot be resolved here", node.Line, node.Tag)
	}
	return node.Value, nil
}

// holds says whether a condition does: !Equals, and !Not of it.
func (s scope) holds(node *yaml.Node) (bool, error) {
	switch {
	case node.Tag == "!Not" && len(node.Content) == 1:
		yes, err := s.holds(node.Content[0])
		return !yes, err
	case node.Tag == "!Equals" && len(node.Content) == 2:
		left, err := s.resolve(node.Content[0])
		if err != nil {
			return false, err
		}
		right, err := s.resolve(node.Content[1])
		return left == right, err
	}
	return false, fmt.Errorf("line %d: the condition %s cannot be resolved here", node.Line, node.Tag)
}
