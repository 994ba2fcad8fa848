package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// section is where SAM keeps the flags of "sam local invoke".
const section = "[default.local_invoke.parameters]"

// parameters reads parameter_overrides, "Key=Value Key=Value", from the section
// of samconfig.toml that sam local invoke itself reads. It understands exactly
// the lines that such a section needs: comments and key = "string".
func parameters(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	params := make(map[string]string)
	inside := false
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			inside = line == section
			continue
		case !inside:
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(key) != "parameter_overrides" {
			continue
		}
		overrides, err := strconv.Unquote(strings.TrimSpace(value)) // a basic TOML string is one of Go, but for rare escapes
		if err != nil {
			return nil, fmt.Errorf("%s:%d: parameter_overrides must be one quoted string", path, n)
		}
		for _, pair := range strings.Fields(overrides) {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, fmt.Errorf("%s:%d: %q is not Key=Value", path, n, pair)
			}
			params[name] = value
		}
	}
	return params, lines.Err()
}
