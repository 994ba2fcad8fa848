package main

import (
	"regexp"
	"testing"
)

var version = regexp.MustCompile(`^(\w+Function)Version[0-9a-f]{10}$`)

// versions returns the logical ids of the functions' versions in a transformed template, by
// the function's logical id.
func versions(d document) map[string]string {
	found := map[string]string{}
	for _, id := range ofType(d, "AWS::Lambda::Version") {
		if m := version.FindStringSubmatch(id); m != nil {
			found[m[1]] = id
		}
	}
	return found
}

// TestWhatPublishes checks that SAM publishes a version of a function when the function's code
// or one of its properties changes, and only then. TestEveryParameterTakesEffect checks the
// values of parameters.
func TestWhatPublishes(t *testing.T) {
	t.Parallel()
	before := versions(transformTemplate(t, templatePath, payTo))
	if len(before) != len(functionSlugs()) {
		t.Fatalf("%d versions of %d functions", len(before), len(functionSlugs()))
	}
	for what, c := range map[string]struct {
		path string
		want bool
	}{
		"a property": {changeTemplate(t, templatePath, "MemorySize: 512", "MemorySize: 1024"), true},
		"the code":   {changeTemplate(t, templatePath, "CodeUri: functions/dns", "CodeUri: {Bucket: bucket, Key: another}"), true},
		"nothing":    {templatePath, false},
	} {
		after := versions(transformTemplate(t, c.path, payTo))
		if got := after["DnsFunction"] != before["DnsFunction"]; got != c.want {
			t.Errorf("%s is changed: a version is published: %v, want %v", what, got, c.want)
		}
	}
}
