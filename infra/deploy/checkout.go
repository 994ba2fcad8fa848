package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
)

// commitForm matches the full name of a commit, which is recorded with a deployment.
var commitForm = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// git runs git in the checkout and returns the output. The checkout may belong to another
// user, as it does in containers, so git is told to trust every folder.
func (d desk) git(ctx context.Context, arguments ...string) (string, error) {
	return output(ctx, program{dir: d.root, name: "git", arguments: append([]string{"-c", "safe.directory=*"}, arguments...)})
}

// checkedOutCommit returns the checked-out commit, which is recorded with the deployment, so
// that a rollback can find it. If a file in the checkout differs from the commit,
// checkedOutCommit returns an error. Stack files may differ, because a rollback does not take
// them from the old commit.
func (d desk) checkedOutCommit(ctx context.Context) (string, error) {
	changed, err := d.git(ctx, "status", "--porcelain", "--", ".", ":!"+stackfile.Folder)
	if err != nil {
		return "", fmt.Errorf("a deployment is made from a git clone, so that it can be rolled back: %w", err)
	}
	if changed != "" {
		return "", fmt.Errorf("these files are in no commit, so a later rollback could not restore them: commit them, or remove them\n%s", changed)
	}
	return d.git(ctx, "rev-parse", "HEAD")
}

// commitOf returns the full name of an existing commit.
func (d desk) commitOf(ctx context.Context, name string) (string, error) {
	commit, err := d.git(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil || !commitForm.MatchString(commit) {
		return "", errors.Join(fmt.Errorf("the commit %s is not in this clone: git fetch, and try again", formatValue(name)), err)
	}
	return commit, nil
}

// worktree checks a commit out into a separate folder. The caller calls remove when the folder
// is no longer needed.
func (d desk) worktree(ctx context.Context, folder, commit string) (remove func(), err error) {
	if _, err := d.git(ctx, "worktree", "add", "--quiet", "--detach", folder, commit); err != nil {
		return nil, err
	}
	return func() {
		uncancelled := context.WithoutCancel(ctx)
		if _, err := d.git(uncancelled, "worktree", "remove", "--force", folder); err != nil {
			fmt.Fprintln(d.notes, err)
		}
	}, nil
}
