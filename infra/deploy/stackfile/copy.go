package stackfile

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"
)

// Copy writes the file into another checkout, without some parameters and with others added. The
// comments of the file are lost.
func (f File) Copy(root string, omitted []string, added map[string]string) error {
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return fmt.Errorf("read %s: %w", relativePath(f.Name), err)
	}
	all := map[string]any{}
	if err := toml.Unmarshal(text, &all); err != nil {
		return withPosition(err)
	}
	parameters := map[string]any{}
	for name, value := range f.Parameters {
		parameters[name] = value
	}
	for _, name := range omitted {
		delete(parameters, name)
	}
	for name, value := range added {
		parameters[name] = value
	}
	commands, _ := all["default"].(map[string]any) // Read has checked that the table exists
	deploy, _ := commands["deploy"].(map[string]any)
	flags, _ := deploy["parameters"].(map[string]any)
	flags["parameter_overrides"] = parameters
	written, err := toml.Marshal(all)
	if err != nil {
		return fmt.Errorf("write %s: %w", relativePath(f.Name), err)
	}
	path, err := Path(root, f.Name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, written, 0o600)
}
