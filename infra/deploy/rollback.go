package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
	"github.com/hostfacts/hostfacts/infra/sam"
)

// rollBack deploys the code of an earlier release with the parameters of today's file. It does
// not move the aliases of functions back to earlier versions. An earlier version keeps the
// environment with which it was published, so it would offer the old payee, and would sell
// again after a stop.
func (d desk) rollBack(ctx context.Context, name string) error {
	f, t, err := d.read(name)
	if err != nil {
		return err
	}
	now, err := d.ask(ctx, f, t)
	if err != nil {
		return err
	}
	commit, err := d.target(ctx, f, now)
	if err != nil {
		return err
	}
	parent, err := os.MkdirTemp("", "rollback-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(parent) //nolint:errcheck // at worst, a temporary folder stays
	former := filepath.Join(parent, "release")
	remove, err := d.worktree(ctx, former, commit)
	if err != nil {
		return err
	}
	defer remove()
	if f.Toolchain == stackfile.CDK && older(former) {
		return fmt.Errorf("the release of %s is older than stack files, and its CDK app cannot read one: check it out, and deploy it by hand with every parameter in -c", short(commit))
	}
	reduced, omitted, err := d.reduced(f, t, former)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.notes, "asking the release of commit %s what it sells\n", short(commit))
	c, err := codeOf(ctx, former)
	if err != nil {
		fmt.Fprintf(d.notes, "note: that release does not say what it sells (%v): compare its prices by hand\n", err)
		c = thisCode()
	}
	j := job{
		desk:   d,
		root:   former,
		file:   reduced,
		record: record{commit: commit},
	}
	if err := j.tried(ctx); err != nil {
		return fmt.Errorf("the CDK app of %s: %w", short(commit), err)
	}
	return d.complete(ctx, j, plan{
		file:    reduced,
		now:     now,
		code:    c,
		commit:  commit,
		omitted: omitted,
	}, t)
}

// target returns the commit to roll back to.
func (d desk) target(ctx context.Context, f stackfile.File, now running) (string, error) {
	before := now.outputs[outputFormer]
	switch {
	case !now.exists:
		return "", fmt.Errorf("there is no stack %s in %s: nothing can be rolled back", f.Stack, f.Region)
	case d.to != "":
		return d.commitOf(ctx, d.to)
	case before == "":
		return "", fmt.Errorf("the previous release is not on record (the stack runs %s): choose a commit from git log, and run make rollback STACK=%s TO=commit", shown(now.outputs[outputCommit]), f.Name)
	}
	return d.commitOf(ctx, before)
}

// reduced writes the stack's file into the checkout of an earlier release, without the
// parameters that the release's template lacks, and with the defaults of those that only this
// template has. It returns the omitted parameters with their values. A parameter that has the
// default of today's template is returned with an empty value, because its omission makes no
// difference.
func (d desk) reduced(f stackfile.File, today *sam.Template, former string) (stackfile.File, map[string]string, error) {
	then, err := sam.Read(filepath.Join(former, "template.yaml"))
	if err != nil {
		return f, nil, err
	}
	omitted := map[string]string{}
	for name, value := range f.Parameters {
		if _, known := then.Parameters[name]; known {
			continue
		}
		if usual := today.Parameters[name].Default; usual != nil && *usual == value {
			value = "" // omitting a default makes no difference
		}
		omitted[name] = value
	}
	added := map[string]string{}
	for name, p := range then.Parameters {
		if _, given := f.Parameters[name]; !given && !p.NoEcho && p.Default != nil {
			added[name] = *p.Default
		}
	}
	if err := f.Copy(former, names(omitted), added); err != nil {
		return f, nil, err
	}
	copied, err := stackfile.Read(former, f.Name)
	if err != nil {
		return f, nil, err
	}
	return copied, omitted, copied.Check(then)
}

// older reports whether a release is older than the command deploy.
func older(root string) bool {
	_, err := os.Stat(filepath.Join(root, "infra", "deploy", "main.go"))
	return errors.Is(err, fs.ErrNotExist)
}

// codeOf returns the code of an earlier release, which says what the release sells. It fails if
// the release has no command that prints this.
func codeOf(ctx context.Context, root string) (code, error) {
	if older(root) {
		return code{}, errors.New("it is older than make deploy")
	}
	out, err := output(ctx, program{
		dir:       filepath.Join(root, "infra", "deploy"),
		name:      "go",
		arguments: []string{"run", ".", sells},
	})
	if err != nil {
		return code{}, err
	}
	var c code
	if err := json.Unmarshal([]byte(out), &c); err != nil || len(c.Operations) == 0 {
		return code{}, errors.Join(errors.New("its answer cannot be read"), err)
	}
	return c, nil
}
