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

// askings limits how many times a finished deployment is compared with its file. askingWait is
// the pause between two comparisons. One comparison is not enough: for a short time after a
// deployment, the previous code may still answer.
const (
	askings    = 6
	askingWait = 10 * time.Second
)

// sells is the name of the command that prints what a release sells.
const sells = "sells"

// say prints, as JSON, what the code of this checkout sells. "make rollback" runs this command
// in the checkout of the release that it rolls back to, and reads the output (see codeOf).
func (d desk) say() error {
	return json.NewEncoder(d.out).Encode(thisCode())
}

// read returns a stack's file and the template of the checkout. It returns an error if
// File.Check finds a fault in the file.
func (d desk) read(name string) (stackfile.File, *sam.Template, error) {
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
	f, _, err := d.read(name)
	if err != nil {
		return err
	}
	if err := (job{desk: d, root: d.root, file: f}).tried(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.notes, "%s/%s.toml is valid\n", stackfile.Folder, name)
	return nil
}

// deploy deploys a stack as its file describes it, with the checked-out code.
func (d desk) deploy(ctx context.Context, name string) error {
	f, t, err := d.read(name)
	if err != nil {
		return err
	}
	commit, err := d.head(ctx)
	if err != nil {
		return err
	}
	j := job{
		desk:   d,
		root:   d.root,
		file:   f,
		record: record{commit: commit},
	}
	if err := j.tried(ctx); err != nil {
		return err
	}
	now, err := d.ask(ctx, f, t)
	if err != nil {
		return err
	}
	j.record.former = now.outputs[outputCommit]
	if j.record.former == commit { // the stack has this commit already: a rollback must still find the commit before it
		j.record.former = now.outputs[outputFormer]
	}
	return d.complete(ctx, j, plan{
		file:   f,
		now:    now,
		code:   thisCode(),
		commit: commit,
	}, t)
}

// ask returns the current state of a stack from AWS.
func (d desk) ask(ctx context.Context, f stackfile.File, t *sam.Template) (running, error) {
	c, err := awsConfig(ctx, f)
	if err != nil {
		return running{}, err
	}
	return describe(ctx, c, f, t)
}

// complete shows what a deployment would change. If the plan is refused, or nobody confirms
// it, complete returns an error and deploys nothing. Otherwise it deploys, marks the ledger,
// and verifies the result against the file.
func (d desk) complete(ctx context.Context, j job, p plan, t *sam.Template) error {
	if origin := originNow(p.now); origin != "" {
		if before, err := fetchAnswers(ctx, d.client, origin, p.code); err == nil {
			p.before = &before
		}
	}
	p.print(d.notes)
	if err := p.refused(); err != nil {
		return err
	}
	for _, note := range p.notes() {
		fmt.Fprintln(d.notes, "note:", note)
	}
	if err := d.agreed(); err != nil {
		return err
	}
	if err := d.carry(ctx, j, p, t); err != nil {
		return err
	}
	now, err := d.ask(ctx, j.file, t)
	if err != nil {
		return fmt.Errorf("it was deployed, but AWS does not answer questions about it: %w", err)
	}
	if is := now.outputs[outputCommit]; is != j.record.commit {
		return fmt.Errorf("it was deployed, but AWS says that the code is of %s, not of %s", shown(is), j.record.commit)
	}
	if err := d.mark(ctx, p, now); err != nil {
		return fmt.Errorf("it was deployed, but the ledger could not be marked: %w", err)
	}
	return d.isWhatItShouldBe(ctx, j.file, now, p.code)
}

// carry builds the confirmed deployment and releases it. If somebody else has changed the
// stack since the plan was made, for example to stop its sales, carry releases nothing and
// returns an error: the person has confirmed only a change of the stack as it was then.
func (d desk) carry(ctx context.Context, j job, p plan, t *sam.Template) error {
	steps := j.tools()
	if err := steps.build(ctx); err != nil {
		return err
	}
	now, err := d.ask(ctx, j.file, t)
	if err != nil {
		return err
	}
	if now.exists != p.now.exists || !now.updated.Equal(p.now.updated) {
		return fmt.Errorf("the stack %s was changed meanwhile by somebody else, and nothing is deployed: begin again", j.file.Stack)
	}
	return steps.release(ctx)
}

// originNow returns the origin that a stack has now, which may differ from the origin in the
// stack's file.
func originNow(now running) string {
	if base := now.parameters["BaseUrl"]; base != "" {
		return base
	}
	return now.outputs[outputOrigin]
}

// agreed asks a person to confirm the deployment. It returns an error if nobody confirms. If
// desk.yes is set, agreed asks nobody and returns nil.
func (d desk) agreed() error {
	if d.yes {
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

// isWhatItShouldBe compares a deployment with its file and its code. If they differ, it pauses
// and compares again. If the last comparison still finds differences, it returns an error that
// lists them.
func (d desk) isWhatItShouldBe(ctx context.Context, f stackfile.File, now running, c code) error {
	origin := originOf(f, now)
	var last error
	for i := range askings {
		if i > 0 {
			fmt.Fprintf(d.notes, "%s does not match the file yet; checking again\n", origin)
			if err := d.pause(ctx, askingWait); err != nil {
				return err
			}
		}
		a, err := fetchAnswers(ctx, d.client, origin, c)
		all := append(now.differences(f), a.differences(f, c)...)
		if err == nil && len(all) == 0 {
			fmt.Fprintf(d.notes, "%s is what %s/%s.toml says: payee %s on %s, selling: %s, %d prices, version %s, ledger %s, code %s\n",
				origin, stackfile.Folder, f.Name, f.Parameters[parameterPayee], f.Parameters[parameterNetwork], f.Parameters[parameterSelling],
				len(c.Operations), c.Version, now.outputs[outputLedger], short(now.outputs[outputCommit]))
			return nil
		}
		last = explained(origin, err, all)
	}
	return last
}

// explained returns an error that lists how a deployment differs from its file. If err is not
// nil, some requests have failed, so an empty value may be a value that was not reported. The
// list then leaves out each difference whose current value is empty.
func explained(origin string, err error, all []difference) error {
	faults := []error{fmt.Errorf("%s is not what its file says", origin)}
	if err != nil {
		faults = append(faults, err)
	}
	for _, d := range all {
		if err == nil || d.is != "" {
			faults = append(faults, errors.New(d.String()))
		}
	}
	return errors.Join(faults...)
}

// smoke compares the deployment with its file. If they agree, it prints the deployment's
// origin, which "make smoke" needs to pay for a ping.
func (d desk) smoke(ctx context.Context, name string) error {
	f, t, err := d.read(name)
	if err != nil {
		return err
	}
	now, err := d.ask(ctx, f, t)
	if err != nil {
		return err
	}
	if !now.exists {
		return fmt.Errorf("there is no stack %s in %s: make deploy STACK=%s", f.Stack, f.Region, name)
	}
	if err := d.isWhatItShouldBe(ctx, f, now, thisCode()); err != nil {
		return err
	}
	fmt.Fprintln(d.out, originOf(f, now))
	return nil
}
