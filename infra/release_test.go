package main

import (
	"regexp"
	"testing"
)

var version = regexp.MustCompile(`^(\w+Function)Version[0-9a-f]{10}$`)

// versions are the logical ids of the versions, by function.
func versions(d document) map[string]string {
	found := map[string]string{}
	for _, id := range ofType(d, "AWS::Lambda::Version") {
		if m := version.FindStringSubmatch(id); m != nil {
			found[m[1]] = id
		}
	}
	return found
}

// TestWhatPublishes: a version is published when code or a property changes, and in
// the CDK app when a parameter does. In template.yaml the value of a parameter is no
// change, which is why make sam-build makes a new binary each time.
func TestWhatPublishes(t *testing.T) {
	t.Parallel()
	before := versions(transformed(t, templatePath, payTo))
	if len(before) != len(slugs()) {
		t.Fatalf("%d versions of %d functions", len(before), len(slugs()))
	}
	for what, c := range map[string]struct {
		path string
		also []string
		want bool
	}{
		"a property":  {changed(t, templatePath, "MemorySize: 512", "MemorySize: 1024"), []string{payTo}, true},
		"the code":    {changed(t, templatePath, "CodeUri: functions/dns", "CodeUri: {Bucket: bucket, Key: another}"), []string{payTo}, true},
		"a parameter": {templatePath, []string{payTo, "FacilitatorUrl=https://facilitator.example"}, false},
		"nothing":     {templatePath, []string{payTo}, false},
	} {
		after := versions(transformed(t, c.path, c.also...))
		if got := after["DnsFunction"] != before["DnsFunction"]; got != c.want {
			t.Errorf("%s is changed: a version is published: %v, want %v", what, got, c.want)
		}
	}
	// The CDK app has the values in the template.
	path := saved(t, synthesized(t))
	other := changed(t, path, `"https://facilitator.example"`, `"https://other.example"`)
	if versions(transformed(t, path))["DnsFunction"] == versions(transformed(t, other))["DnsFunction"] {
		t.Error("a parameter of the CDK app is changed, and no version is published")
	}
}
