package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
	"github.com/hostfacts/hostfacts/infra/sam"
)

// Keys of the CDK context that concern a stack's file. The key "stack" names the file. The
// command "make deploy" adds the other keys.
const (
	ctxFile    = "stack"        // the file's name, without folder and extension
	ctxUnknown = "unknown"      // how to treat settings that this release does not know: see ignoreUnknown
	ctxCommit  = "commit"       // the commit of the code that is being deployed
	ctxFormer  = "formerCommit" // the commit of the code that was deployed before
)

// ignoreUnknown is the value of the context key "unknown" for a file that may be from a later
// release. With this value, unknown settings are reported but are not an error.
const ignoreUnknown = "ignore"

// released is what "make deploy" records about the code in the stack's outputs.
type released struct{ commit, former string }

// loadSettings returns the settings. If the context names a stack's file, the settings come
// from the file, and values in the context take precedence. Otherwise they come from the
// context alone.
func loadSettings(root string, get func(*string) any, notes io.Writer) (settings, error) {
	text := func(key string) string {
		v, _ := get(&key).(string)
		return v
	}
	if text(ctxFile) == "" {
		return parseSettings(root, get)
	}
	f, err := stackfile.Read(root, text(ctxFile))
	if err != nil {
		return settings{}, err
	}
	t, err := sam.Read(filepath.Join(root, templateName))
	if err != nil {
		return settings{}, err
	}
	if err := f.Check(t); err != nil {
		return settings{}, err
	}
	asked := map[string]bool{}
	s, err := parseSettings(root, func(key *string) any {
		asked[*key] = true
		if v := get(key); v != nil {
			return v
		}
		return fileValue(f, *key)
	})
	if err != nil {
		return s, err
	}
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(f.Settings)), func(key string) bool { return asked[key] })
	if len(unknown) > 0 && text(ctxUnknown) != ignoreUnknown {
		return s, fmt.Errorf("[hostfacts.cdk] has what is no setting of the CDK app: %s", strings.Join(unknown, ", "))
	}
	for _, key := range unknown {
		fmt.Fprintf(notes, "%s is no setting of this release, and is left out\n", key)
	}
	s.released = released{text(ctxCommit), text(ctxFormer)}
	return s, nil
}

// fileValue returns a file's value for a key of the context, or nil.
func fileValue(f stackfile.File, key string) any {
	if key == ctxStack {
		return f.Stack
	}
	if v, ok := f.Parameters[key]; ok {
		return v
	}
	return f.Settings[key]
}

// record adds outputs that say which code is deployed. A deployment by hand has no such
// outputs, so it cannot be mistaken for a recorded one.
func (e *envelope) record() {
	if e.commit != "" {
		e.output("Commit", "Commit of the code that make deploy or make rollback deployed", &e.commit)
	}
	if e.former != "" {
		e.output("FormerCommit", "Commit of the code that ran before", &e.former)
	}
}
