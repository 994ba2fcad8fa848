// Command secret creates, shows and changes the Secrets Manager secret that
// FacilitatorSecretArn names: the facilitator's credentials, the nodes of the chain and the
// receipt key. It changes one part and keeps the others. It checks the result in the same way as
// the service's Lambda functions, and never shows a value.
//
//	make secret NAME=hostfacts-production-facilitator
//	make secret NAME=hostfacts-production-facilitator SET=token
//
// The exit status is 1 when the command failed, and 2 for a wrong command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// The exit statuses other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	if version, asked := called.Version(os.Args); asked {
		fmt.Println(version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o := order{
		invocation: called.Here(os.Getenv, os.Args[0]),
		getenv:     os.Getenv,
		person:     terminal{os.Stdin, os.Stderr},
		out:        os.Stdout,
		notes:      os.Stderr,
	}
	code := run(ctx, os.Args[1:], o)
	stop()
	os.Exit(code)
}

// order is the parsed command line, with the streams to read and write.
type order struct {
	name       string // the name of the secret, or its ARN
	set, unset string // the part to set, and the part to remove; at most one is given
	file       string // the file with the value; if empty, the value is read from the terminal or standard input
	assumeYes  bool   // write the secret without asking a person

	invocation called.As
	getenv     func(string) string
	person     person
	out, notes io.Writer
}

// run parses the command line, executes it, and returns the exit status.
func run(ctx context.Context, args []string, o order) int {
	flags := flag.NewFlagSet("secret", flag.ContinueOnError)
	flags.SetOutput(o.notes)
	flags.StringVar(&o.name, "name", "", "name or ARN of the secret")
	flags.StringVar(&o.set, "set", "", "the part to change: "+memberNames())
	flags.StringVar(&o.unset, "unset", "", "the part to remove")
	flags.StringVar(&o.file, "file", "", "file with the value, which nobody else can read")
	flags.BoolVar(&o.assumeYes, "yes", false, "write without asking")
	flags.Usage = func() {
		usage := o.invocation.Program("") + " -name NAME [-set PART] [-unset PART] [-file FILE] [-yes]"
		if o.invocation.ByMake() {
			usage = "make secret NAME=hostfacts-production-facilitator [SET=...] [UNSET=...] [FILE=...] [YES=1]"
		}
		fmt.Fprintf(o.notes, "usage: %s\nA part is one of %s\n", usage, memberNames())
	}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		// The arguments are not shown, because they may contain a secret value.
		fmt.Fprintln(o.notes, "too many arguments. Never type a value on the command line, where the shell and other processes can see it")
		return exitUsage
	case !o.isComplete():
		flags.Usage()
		return exitUsage
	}
	if err := o.execute(ctx); err != nil {
		fmt.Fprintln(o.notes, err)
		return exitFailed
	}
	return 0
}

// isComplete reports whether the order names a secret and at most one part to change. That part
// must be one that members returns.
func (o order) isComplete() bool {
	if o.name == "" {
		return false
	}
	if o.set != "" && o.unset != "" {
		return false
	}
	return isPartOrEmpty(o.set) && isPartOrEmpty(o.unset)
}

func isPartOrEmpty(name string) bool {
	_, is := members()[name]
	return is || name == ""
}

// execute shows the secret, or changes a part of it.
func (o order) execute(ctx context.Context) error {
	config, err := boot.ParseAWS(o.getenv, "AWS_ENDPOINT_URL_SECRETS_MANAGER")
	if err != nil {
		return err
	}
	v := newVault(config, o.name)
	now, err := v.load(ctx)
	if err != nil {
		return err
	}
	if o.set == "" && o.unset == "" {
		return o.printSecret(now)
	}
	had, err := now.members()
	if err != nil {
		return err
	}
	values, err := o.readNewValues(ctx)
	if err != nil {
		return err
	}
	then := mergePart(had, o.set+o.unset, values)
	changes := differences(had, then)
	switch {
	case len(changes) == 0:
		fmt.Fprintln(o.notes, "nothing changes: the secret has that already")
		return nil
	case len(then) == 0:
		return errors.New("the secret would be empty, which the functions refuse: nothing was written")
	}
	doc := document(then)
	if err := boot.CheckSecret(doc); err != nil {
		return fmt.Errorf("nothing was written, because the functions would refuse it: %w", err)
	}
	if err := o.confirmChanges(ctx, now, then, changes); err != nil {
		return err
	}
	arn, err := v.write(ctx, now, doc)
	if err != nil {
		return err
	}
	return o.printWritten(now, then, doc, arn)
}

// readNewValues reads the new values of the part to set. If the order removes a part,
// readNewValues reads nothing and returns nil.
func (o order) readNewValues(ctx context.Context) (map[string]value, error) {
	if o.set == "" {
		return nil, nil
	}
	text, err := o.readValue(ctx, members()[o.set].question)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	values, err := members()[o.set].parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.set, err)
	}
	return values, nil
}

// printSecret prints the ARN of the secret, and which members the secret has, without their
// values. If the Lambda functions would refuse the secret, printSecret returns an error that
// says why.
func (o order) printSecret(now storedSecret) error {
	if !now.exists {
		return fmt.Errorf("there is no secret %q in %s. %s creates it with its first part", o.name, now.region,
			o.invocation.Target("secret", called.Word{
				Name:  "NAME",
				Flag:  "-name",
				Value: o.name,
			}, called.Word{Name: "SET", Flag: "-set", Value: "token"}))
	}
	had, err := now.members()
	if err != nil {
		return err
	}
	printMembers(o.out, had, now.doc)
	fmt.Fprintf(o.out, "FacilitatorSecretArn=%s\n", now.arn)
	if err := boot.CheckSecret(now.doc); err != nil {
		return fmt.Errorf("the functions refuse this: %w", err)
	}
	return nil
}

// confirmChanges shows the changes, without values, and asks a person to confirm. If the
// person does not confirm, confirmChanges returns an error. With YES=1, it does not ask.
func (o order) confirmChanges(ctx context.Context, now storedSecret, then map[string]value, changes []change) error {
	what := fmt.Sprintf("change secret %s", now.arn)
	if !now.exists {
		what = fmt.Sprintf("make secret %s in %s", o.name, now.region)
	}
	fmt.Fprintln(o.notes, what+":")
	for _, change := range changes {
		fmt.Fprintln(o.notes, " ", change.line)
	}
	for _, name := range unchangedNames(then, changes) {
		fmt.Fprintln(o.notes, "  =", name, "stays")
	}
	if o.assumeYes {
		return nil
	}
	agreed, err := o.person.confirm(ctx, "Write this? [y/N] ")
	switch {
	case err != nil:
		return fmt.Errorf("nothing was written: %w. %s writes it without asking", err, o.invocation.Text(called.Word{Name: "YES", Flag: "-yes"}))
	case !agreed:
		return errors.New("nothing was written")
	}
	return nil
}

// printWritten prints the ARN of the secret, and which members the secret now has, without
// their values. It also prints what the operator must do next.
func (o order) printWritten(before storedSecret, then map[string]value, doc []byte, arn string) error {
	printMembers(o.notes, then, doc)
	if before.exists {
		fmt.Fprintln(o.notes, "Running functions read the secret again within a minute of the old value failing: revoke the old value now.")
	} else {
		fmt.Fprintln(o.notes, "Set the stack's parameter to the complete ARN:")
	}
	_, err := fmt.Fprintf(o.out, "FacilitatorSecretArn=%s\n", arn)
	return err
}
