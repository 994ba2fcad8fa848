package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// ledgerOrder is a command line of reconcile. Without a flag it looks once at every
// payment in doubt, as the scheduled function does every few minutes. -owed lists
// what is owed and in doubt, -payer what there is of one payer, -refund says what to
// pay back, and closes the record once that is done, -answered closes one that was
// answered before the ledger was restored, and -books compares a day's transfers to the
// payee with the ledger.
//
// Without LEDGER_TABLE the ledger is the file, or that of a service that runs.
// Without RPC_URL the chain is not asked: only what was never sent is decided then.
type ledgerOrder struct {
	owed, asJSON, force        bool
	payer, refund, transaction string
	answered                   string
	books                      string
	given                      map[string]bool
}

// read reads a command line; ok means that there is something to be done.
func read(args []string, notes io.Writer) (o ledgerOrder, code int, ok bool) {
	flags := flag.NewFlagSet("reconcile", flag.ContinueOnError)
	flags.SetOutput(notes)
	flags.BoolVar(&o.owed, "owed", false, "list what is owed, to whom, and what is in doubt")
	flags.StringVar(&o.payer, "payer", "", "list what there is of a payer, by `address`, and say what it comes to")
	flags.StringVar(&o.refund, "refund", "", "say what to pay back for a record, by `key`")
	flags.StringVar(&o.transaction, "transaction", "", "with -refund: close the record on the `transaction` that paid it back; with -answered: the one that paid for it")
	flags.StringVar(&o.answered, "answered", "", "close a record, by `key`, that was answered before the ledger was restored")
	flags.BoolVar(&o.force, "force", false, "with -transaction: also where the chain cannot be asked about it, or a refund was begun")
	flags.StringVar(&o.books, "books", "", "compare the transfers of a `day`, such as 2026-11-20, with the ledger")
	flags.BoolVar(&o.asJSON, "json", false, "with -owed, -payer or -books: JSON for a program")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return o, 0, false
	case err != nil:
		return o, exitUsage, false
	}
	o.given = map[string]bool{}
	flags.Visit(func(f *flag.Flag) { o.given[f.Name] = true })
	if flags.NArg() > 0 || !o.sound() {
		flags.Usage()
		return o, exitUsage, false
	}
	return o, 0, true
}

// sound says whether the flags go together.
func (o ledgerOrder) sound() bool {
	tools := 0
	for _, tool := range []bool{o.owed, o.given["payer"], o.given["refund"], o.given["answered"], o.given["books"]} {
		if tool {
			tools++
		}
	}
	return tools <= 1 && (!o.asJSON || o.owed || o.given["payer"] || o.given["books"]) &&
		(o.given["transaction"] == o.given["answered"] || o.given["refund"]) && (!o.force || o.given["transaction"])
}

// runReconcile is the whole command; it returns the exit status.
func runReconcile(ctx context.Context, args []string, getenv func(string) string, out, notes io.Writer) int {
	o, code, ok := read(args, notes)
	if !ok {
		return code
	}
	err := o.do(ctx, getenv, out, notes)
	if err != nil {
		fmt.Fprintln(notes, err)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDifferences):
		return exitDiffers
	}
	return exitFailed
}

// do checks what was typed before the ledger is opened.
func (o ledgerOrder) do(ctx context.Context, getenv func(string) string, out, notes io.Writer) error {
	var wallet x402.Address
	var debt debtKey
	var day time.Time
	var err error
	switch {
	case o.given["payer"]:
		wallet, err = readWallet(o.payer)
	case o.given["refund"]:
		debt, err = readDebt(o.refund, o.transaction, o.given["transaction"])
	case o.given["answered"]:
		debt, err = readDebt(o.answered, o.transaction, true)
		debt.answered = true
	case o.given["books"]:
		day, err = readDay(o.books, time.Now())
	}
	if err != nil {
		return err
	}
	pays := o.given["refund"] || o.given["answered"]
	looks := o.owed || o.given["payer"] || pays
	l, err := open(getenv, notes, !looks)
	if err != nil {
		return err
	}
	defer l.close()
	switch {
	case o.owed:
		if err := l.sound(ctx); err != nil {
			return err
		}
		return l.listOwed(ctx, out, o.asJSON)
	case o.given["payer"]:
		return l.listPayer(ctx, out, wallet, o.asJSON)
	case pays:
		return l.refund(ctx, out, debt, o.force)
	case o.given["books"]:
		return l.listBooks(ctx, out, day, o.asJSON)
	}
	return l.reconcile(ctx, out)
}

// reconcile runs once and prints what it came to.
func (o opened) reconcile(ctx context.Context, out io.Writer) error {
	begun := o.parts.Platform.Now()
	s, err := o.parts.Reconciler.Run(ctx)
	evidence := o.node
	if o.parts.Chain == nil {
		evidence = "none (RPC_URL): only what was never sent is decided"
	}
	fmt.Fprintf(out, "ledger    %s\nevidence  %s\n", o.name, evidence)
	printSummary(out, s)
	if o.parts.Chain != nil {
		printReceived(out, s)
	}
	printOwed(out, s)
	fmt.Fprintf(out, "took      %s\n", o.parts.Platform.Now().Sub(begun).Round(time.Millisecond))
	return err
}

func printSummary(out io.Writer, s x402.Summary) {
	fmt.Fprintf(out, "in doubt  %d of %d listed\n", s.Open, s.Listed)
	printRows(out, []row{
		{s.SettledLate, "found paid"}, {s.RefusedLate, "found never paid"}, {s.StillOpen, "can still be paid"},
		{s.CannotTell, "no evidence"}, {s.Undue, "too early to tell whether they were sent"}, {s.Skipped, "decided or held meanwhile"}, {s.Failed, "failed"}, {s.Left, "not reached"},
	})
}

// printReceived says what has come in since the last run.
func printReceived(out io.Writer, s x402.Summary) {
	fmt.Fprintf(out, "received  %d transfers since the last run\n", s.Received)
	printRows(out, []row{
		{s.Deposits, "no payment: not signed for, or of less than anything costs"},
		{s.Found, "for a payment thought to be unpaid: the answer is owed now"},
		{s.Unasked, "that nobody here asked an answer for: a refund is due"},
		{s.Unmatched, "too old to be recorded, or with a broken record: look for the answer by hand"},
	})
	if s.Unread {
		fmt.Fprintln(out, "          the chain could not be read to its end: the next run reads on")
	}
}

func printOwed(out io.Writer, s x402.Summary) {
	fmt.Fprintf(out, "owed      %d, refunds due: %d (make owed lists them)\n", s.Owed, s.Exhausted)
	printRows(out, []row{{s.Silent, "closed: the target's silence is the answer"}, {s.Uncounted, "not counted"}})
	if s.Unfinished {
		fmt.Fprintln(out, "          the index was not read to its end: there is more of everything")
	}
}

// row is one number of a summary, in words.
type row struct {
	n    int
	what string
}

// printRows leaves out what there is none of.
func printRows(out io.Writer, rows []row) {
	for _, r := range rows {
		if r.n > 0 {
			fmt.Fprintf(out, "          %d %s\n", r.n, r.what)
		}
	}
}
