package lambdahost

import (
	"fmt"
	"maps"
	"path/filepath"

	"github.com/hostfacts/hostfacts/infra/sam"
)

// FromTemplate reads functions, routes, time-outs and environments from a SAM
// template, so that the template itself is what is run. A function's task root is
// buildDir and its slug. params are those of sam.Template.Functions; extraEnv is
// added to every function's environment and wins.
func FromTemplate(templatePath, buildDir string, params, extraEnv map[string]string) (Config, error) {
	var cfg Config
	t, err := sam.Read(templatePath)
	if err != nil {
		return cfg, err
	}
	functions, err := t.Functions(params)
	if err != nil {
		return cfg, fmt.Errorf("%s: %w", templatePath, err)
	}
	for _, f := range functions {
		maps.Copy(f.Env, extraEnv)
		cfg.Functions = append(cfg.Functions, Function{
			Name: f.Name, Dir: filepath.Join(buildDir, f.Slug), Handler: f.Handler,
			Timeout: f.Timeout, Memory: f.Memory, Concurrency: f.Concurrency, Env: f.Env,
		})
		for _, key := range f.Routes {
			cfg.Routes = append(cfg.Routes, Route{Key: key, Function: f.Name})
		}
	}
	return cfg, nil
}
