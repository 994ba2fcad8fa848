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

// rollBack deploys the code of an earlier release with the parameters of today's file. It
// could instead move the functions' aliases back to earlier versions, but an earlier version
// keeps the environment with which it was published. Such a version would offer the payee of
// that time, and would sell although the sales have been stopped since.
func (d desk) rollBack(ctx context.Context, name string) error {
	f, t, err := d.readStack(name)
	if err != nil {
		return err
	}
	now, err := d.currentState(ctx, f, t)
	if err != nil {
		return err
	}
	commit, err := d.rollbackTarget(ctx, f, now)
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
	if f.Toolchain == stackfile.CDK && lacksDeploy(former) {
		return fmt.Errorf("the release of %s is older than stack files, and its CDK app cannot read one: check it out, and deploy it by hand with every parameter in -c", shortCommit(commit))
	}
	reduced, omitted, err := d.adaptFile(f, t, former)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.notes, "asking the release of commit %s what it sells\n", shortCommit(commit))
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
	if err := j.checkByCDKApp(ctx); err != nil {
		return fmt.Errorf("the CDK app of %s: %w", shortCommit(commit), err)
	}
	return d.deployPlan(ctx, j, plan{
		file:    reduced,
		current: now,
		code:    c,
		commit:  commit,
		omitted: omitted,
	}, t)
}

// rollbackTarget returns the commit to roll back to: the commit that the person named
// (desk.rollbackCommit), or otherwise the previous release in the stack's outputs.
func (d desk) rollbackTarget(ctx context.Context, f stackfile.File, now stackState) (string, error) {
	before := now.outputs[outputFormer]
	switch {
	case !now.exists:
		return "", fmt.Errorf("there is no stack %s in %s: nothing can be rolled back", f.Stack, f.Region)
	case d.rollbackCommit != "":
		return d.commitOf(ctx, d.rollbackCommit)
	case before == "":
		return "", fmt.Errorf("the previous release is not on record (the stack runs %s): choose a commit from git log, and run make rollback STACK=%s TO=commit", formatValue(now.outputs[outputCommit]), f.Name)
	}
	return d.commitOf(ctx, before)
}

// adaptFile writes the stack's file into the checkout of an earlier release, and adapts it to
// the template of that release. It leaves out each parameter that the earlier template lacks.
// It adds each parameter that the file lacks, with the default in the earlier template.
// Besides the adapted file, it returns the parameters that it left out, with their values. If
// such a value is the default in today's template, it is returned as an empty string, because
// leaving out a default makes no difference.
func (d desk) adaptFile(f stackfile.File, today *sam.Template, former string) (stackfile.File, map[string]string, error) {
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

// lacksDeploy reports whether the release in a checkout does not contain the command deploy,
// because the release is older than the command.
func lacksDeploy(root string) bool {
	_, err := os.Stat(filepath.Join(root, "infra", "deploy", "main.go"))
	return errors.Is(err, fs.ErrNotExist)
}

// codeOf runs the command "sells" of the release in a checkout, and returns what that release
// sells. It returns an error if the release is older than the command deploy, or if the output
// of "sells" cannot be read.
func codeOf(ctx context.Context, root string) (code, error) {
	if lacksDeploy(root) {
		return code{}, errors.New("it is older than make deploy")
	}
	out, err := output(ctx, program{
		dir:       filepath.Join(root, "infra", "deploy"),
		name:      "go",
		arguments: []string{"run", ".", commandSells},
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
