package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
	"github.com/hostfacts/hostfacts/infra/sam"
)

// maxComparisons limits how many times a finished deployment is compared with its file.
// comparisonPause is the pause between two comparisons. One comparison is not enough: for a
// short time after a deployment, the previous code may still answer.
const (
	maxComparisons  = 6
	comparisonPause = 10 * time.Second
)

// commandSells is the name of the command that prints what a release sells.
const commandSells = "sells"

// printOwnCode prints, as JSON, what the code of this checkout sells. "make rollback" runs
// this command in the checkout of the release that it rolls back to, and reads the output (see
// codeOf).
func (d desk) printOwnCode() error {
	return json.NewEncoder(d.out).Encode(thisCode())
}

// readStack returns a stack's file and the template of the checkout. It returns an error if
// File.Check finds a fault in the file.
func (d desk) readStack(name string) (stackfile.File, *sam.Template, error) {
	t, err := sam.Read(filepath.Join(d.root, "template.yaml"))
	if err != nil {
		return stackfile.File{}, nil, err
	}
	f, err := stackfile.Read(d.root, name)
	if err != nil {
		return f, t, err
	}
	return f, t, f.Check(t)
}

// checkFile checks a stack's file. If the file is for the CDK, the CDK app checks its settings
// as well.
func (d desk) checkFile(ctx context.Context, name string) error {
	f, _, err := d.readStack(name)
	if err != nil {
		return err
	}
	if err := (job{desk: d, root: d.root, file: f}).checkByCDKApp(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.notes, "%s/%s.toml is valid\n", stackfile.Folder, name)
	return nil
}

// deploy deploys a stack as its file describes it, with the checked-out code.
func (d desk) deploy(ctx context.Context, name string) error {
	f, t, err := d.readStack(name)
	if err != nil {
		return err
	}
	commit, err := d.checkedOutCommit(ctx)
	if err != nil {
		return err
	}
	j := job{
		desk:   d,
		root:   d.root,
		file:   f,
		record: record{commit: commit},
	}
	if err := j.checkByCDKApp(ctx); err != nil {
		return err
	}
	now, err := d.currentState(ctx, f, t)
	if err != nil {
		return err
	}
	j.record.formerCommit = now.outputs[outputCommit]
	if j.record.formerCommit == commit { // the stack has this commit already: a rollback must still find the commit before it
		j.record.formerCommit = now.outputs[outputFormer]
	}
	return d.deployPlan(ctx, j, plan{
		file:    f,
		current: now,
		code:    thisCode(),
		commit:  commit,
	}, t)
}

// currentState returns the current state of a stack from AWS.
func (d desk) currentState(ctx context.Context, f stackfile.File, t *sam.Template) (stackState, error) {
	c, err := awsConfig(ctx, f)
	if err != nil {
		return stackState{}, err
	}
	return describe(ctx, c, f, t)
}

// deployPlan shows what a deployment would change. If the plan is refused, or nobody confirms
// it, deployPlan returns an error and deploys nothing. Otherwise it deploys, marks the ledger,
// and verifies the result against the file.
func (d desk) deployPlan(ctx context.Context, j job, p plan, t *sam.Template) error {
	if origin := originNow(p.current); origin != "" {
		if before, err := fetchAnswers(ctx, d.client, origin, p.code); err == nil {
			p.currentAnswers = &before
		}
	}
	p.print(d.notes)
	if err := p.checkAllowed(); err != nil {
		return err
	}
	for _, note := range p.notes() {
		fmt.Fprintln(d.notes, "note:", note)
	}
	if err := d.askForConsent(); err != nil {
		return err
	}
	if err := d.buildAndRelease(ctx, j, p, t); err != nil {
		return err
	}
	now, err := d.currentState(ctx, j.file, t)
	if err != nil {
		return fmt.Errorf("it was deployed, but AWS does not answer questions about it: %w", err)
	}
	if is := now.outputs[outputCommit]; is != j.record.commit {
		return fmt.Errorf("it was deployed, but AWS says that the code is of %s, not of %s", formatValue(is), j.record.commit)
	}
	if err := d.mark(ctx, p, now); err != nil {
		return fmt.Errorf("it was deployed, but the ledger could not be marked: %w", err)
	}
	return d.verify(ctx, j.file, now, p.code)
}

// buildAndRelease builds the confirmed deployment and releases it. If somebody else has
// changed the stack since the plan was made, for example to stop its sales, the confirmation
// does not count any more: buildAndRelease releases nothing and returns an error.
func (d desk) buildAndRelease(ctx context.Context, j job, p plan, t *sam.Template) error {
	steps := j.tools()
	if err := steps.build(ctx); err != nil {
		return err
	}
	now, err := d.currentState(ctx, j.file, t)
	if err != nil {
		return err
	}
	if now.exists != p.current.exists || !now.updatedAt.Equal(p.current.updatedAt) {
		return fmt.Errorf("the stack %s was changed meanwhile by somebody else, and nothing is deployed: begin again", j.file.Stack)
	}
	return steps.release(ctx)
}

// originNow returns the origin that a stack has now, which may differ from the origin in the
// stack's file.
func originNow(now stackState) string {
	if base := now.parameters["BaseUrl"]; base != "" {
		return base
	}
	return now.outputs[outputOrigin]
}

// askForConsent asks a person to confirm the deployment. It returns an error if nobody
// confirms. If desk.skipConsent is set, askForConsent asks nobody and returns nil.
func (d desk) askForConsent() error {
	if d.skipConsent {
		return nil
	}
	fmt.Fprint(d.notes, "Deploy this? [y/N] ")
	answer, err := bufio.NewReader(d.in).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(answer)); word == "y" || word == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(d.notes)
		return errors.New("nobody confirmed, and nothing is deployed: set YES=1 to deploy without asking")
	}
	return errors.New("nothing is deployed")
}

// verify compares a deployment with its file and its code. If they differ, it pauses
// and compares again. If the last comparison still finds differences, it returns an error that
// lists them.
func (d desk) verify(ctx context.Context, f stackfile.File, now stackState, c code) error {
	origin := originOf(f, now)
	var last error
	for i := range maxComparisons {
		if i > 0 {
			fmt.Fprintf(d.notes, "%s does not match the file yet; checking again\n", origin)
			if err := d.pause(ctx, comparisonPause); err != nil {
				return err
			}
		}
		a, err := fetchAnswers(ctx, d.client, origin, c)
		all := append(now.differences(f), a.differences(f, c)...)
		if err == nil && len(all) == 0 {
			fmt.Fprintf(d.notes, "%s is what %s/%s.toml says: payee %s on %s, selling: %s, %d prices, version %s, ledger %s, code %s\n",
				origin, stackfile.Folder, f.Name, f.Parameters[parameterPayee], f.Parameters[parameterNetwork], f.Parameters[parameterSelling],
				len(c.Operations), c.Version, now.outputs[outputLedger], shortCommit(now.outputs[outputCommit]))
			return nil
		}
		last = differencesError(origin, err, all)
	}
	return last
}

// differencesError returns an error that lists how a deployment differs from its file. If err
// is not nil, some requests have failed, so an empty value may be a value that was not
// reported. The list then leaves out each difference whose current value is empty.
func differencesError(origin string, err error, all []difference) error {
	faults := []error{fmt.Errorf("%s is not what its file says", origin)}
	if err != nil {
		faults = append(faults, err)
	}
	for _, d := range all {
		if err == nil || d.got != "" {
			faults = append(faults, errors.New(d.String()))
		}
	}
	return errors.Join(faults...)
}

// smoke compares the deployment with its file. If they agree, it prints the deployment's
// origin, which "make smoke" needs to pay for a ping.
func (d desk) smoke(ctx context.Context, name string) error {
	f, t, err := d.readStack(name)
	if err != nil {
		return err
	}
	now, err := d.currentState(ctx, f, t)
	if err != nil {
		return err
	}
	if !now.exists {
		return fmt.Errorf("there is no stack %s in %s: make deploy STACK=%s", f.Stack, f.Region, name)
	}
	if err := d.verify(ctx, f, now, thisCode()); err != nil {
		return err
	}
	fmt.Fprintln(d.out, originOf(f, now))
	return nil
}
