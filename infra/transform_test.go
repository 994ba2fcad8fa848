package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"
)

// alias is what callers use.
const alias = "live"

// TestTransform: both templates are, as CloudFormation sees them after the transform, what
// testdata has: how functions run, for how long and with which roles; how they are released;
// who may call them for which path; and the stage with its throttling. Of the functions that
// the catalog decides there is one, because the others are written like it. What cdk-nag and
// cfn-lint say of all has its own tests.
func TestTransform(t *testing.T) {
	t.Parallel()
	for file, transform := range map[string]func(t *testing.T) document{
		"testdata/transformed.json":     func(t *testing.T) document { return transformed(t, templatePath, payTo) },
		"testdata/transformed.cdk.json": func(t *testing.T) document { return transformed(t, saved(t, synthesized(t))) },
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			d, kept := transform(t), document{}
			for id, r := range section(d, "Resources") {
				if regexp.MustCompile(`^(Dns|Discovery|Health|Reconcile)Function|^Api|Deploy|^Release`).MatchString(id) {
					delete(properties(d, id), "Environment") // see infra/sam
					kept[id] = r
				}
			}
			for _, id := range releaseAlarms(t) {
				metrics := properties(d, id)["Metrics"].([]any)
				properties(d, id)["Metrics"] = slices.DeleteFunc(metrics, func(m any) bool {
					return !slices.Contains([]any{"dns", "discovery", "reconcile"}, m.(document)["Id"])
				})
			}
			paths := section(section(properties(d, idAPI), "Body"), "paths")
			for path := range paths {
				if !slices.Contains([]string{"/v1/tools/dns", "/health", "/ready", "$default"}, path) {
					delete(paths, path)
				}
			}
			text := must(json.MarshalIndent(kept, "", "  "))(t)
			golden(t, file, regexp.MustCompile(`(Version|Deployment)[0-9a-f]{10}`).ReplaceAll(text, []byte("$1")))
		})
	}
}
