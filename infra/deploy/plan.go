package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
)

// The names of the template's parameters that a plan reads. Their values decide whether the
// deployment is refused, and which notes the plan has.
const (
	parameterPayee   = "PayTo"
	parameterNetwork = "Network"
	parameterToken   = "UsdcAsset"
	parameterSelling = "Selling"
	parameterLedger  = "LedgerTableName"
	parameterFormer  = "FormerTerms"
)

// unknownValue is shown in place of a current value that neither AWS nor the running
// deployment reports.
const unknownValue = "not known"

// newTable is shown in place of the name of a ledger table that the deployment would create.
const newTable = "a new table"

// plan is a deployment that has not been confirmed yet.
type plan struct {
	file           stackfile.File
	current        stackState
	currentAnswers *answers // what the running deployment reports; nil if it does not answer
	code           code
	commit         string
	// omitted has the parameters in the file that the template to be deployed lacks, with
	// their values. An empty text takes the place of a default value (see adaptFile).
	omitted map[string]string
}

// row is a line in the table of differences: a name, the current value, and the value after
// the deployment.
type row struct{ name, current, planned string }

// rows returns a row for each value that the deployment would change, and for each omitted
// parameter.
func (p plan) rows() (all []row) {
	add := func(what, is, will string) {
		if is != will {
			all = append(all, row{what, is, will})
		}
	}
	add("code", shortCommit(p.current.outputs[outputCommit]), shortCommit(p.commit))
	for _, name := range names(p.file.Parameters) {
		is, known := p.current.parameters[name]
		if !known {
			is = unknownValue
		}
		add(name, is, p.file.Parameters[name])
	}
	if from, to := p.tables(); from != to {
		add("the ledger's table", from, to)
	}
	for _, op := range p.code.Operations {
		add("price of "+op.Slug, p.price(op), op.Amount)
	}
	for _, name := range names(p.omitted) {
		all = append(all, row{name, p.current.parameters[name], "left out: this release does not have it"})
	}
	return all
}

// price returns the price, in atomic units, that an operation has before the deployment. If
// the running deployment does not answer, price returns unknownValue. If that deployment does
// not offer the operation, price returns "".
func (p plan) price(op operation) string {
	if p.currentAnswers == nil {
		return unknownValue
	}
	return p.currentAnswers.offers[op.Slug].Amount
}

// tables returns the names of the ledger's table before and after the deployment. If the
// deployment would create a table, the second result is newTable.
func (p plan) tables() (from, to string) {
	from, to = p.current.outputs[outputLedger], p.file.Parameters[parameterLedger]
	own := p.current.parameters[parameterLedger] == ""
	switch {
	case to == "" && own:
		return from, from
	case to == "":
		return from, newTable
	}
	return from, to
}

// shortCommit returns the short form of a commit.
func shortCommit(commit string) string {
	const enough = 12
	if len(commit) > enough {
		return commit[:enough]
	}
	return commit
}

// print writes the differences as a table.
func (p plan) print(to io.Writer) {
	if !p.current.exists {
		fmt.Fprintf(to, "The stack %s does not exist in %s: this creates it.\n", p.file.Stack, p.file.Region)
		fmt.Fprintf(to, "  payee %s on %s, selling: %s\n", p.file.Parameters[parameterPayee], p.file.Parameters[parameterNetwork], p.file.Parameters[parameterSelling])
		return
	}
	rows := p.rows()
	if len(rows) == 0 {
		fmt.Fprintf(to, "The stack %s in %s is what its file says, and its code is this one.\n", p.file.Stack, p.file.Region)
		return
	}
	fmt.Fprintf(to, "Changes to the stack %s in %s:\n\n", p.file.Stack, p.file.Region)
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\tnow\tthen")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.name, formatValue(r.current), formatValue(r.planned))
	}
	_ = w.Flush() // the deployment does not depend on the printed table
	fmt.Fprintln(to)
}

// change is a change of a value, which is refused unless the stack's file allows it. The field
// meaning says what the change would mean for the stack.
type change struct{ name, from, to, meaning string }

// entry returns the text that allows the change if it is in the file's list allow. The text
// contains both values, so it allows no other change.
func (c change) entry() string { return c.name + "=" + c.from + "->" + c.to }

// changes returns the changes of this plan that the stack's file must allow.
func (p plan) changes() (all []change) {
	if p.current.exists {
		all = p.termChanges()
	}
	for _, name := range names(p.omitted) {
		if p.omitted[name] != "" {
			all = append(all, change{"without", name, shortCommit(p.commit), "that release does not have " + name + ", so the value in the file would have no effect"})
		}
	}
	return all
}

// termChanges returns the changes of payee, network, token, ledger and prices, and the
// start of sales.
func (p plan) termChanges() (all []change) {
	changed := func(what, parameter, why string) {
		is, known := p.current.parameters[parameter]
		if will := p.file.Parameters[parameter]; known && !strings.EqualFold(is, will) {
			all = append(all, change{what, is, will, why})
		}
	}
	changed("payee", parameterPayee, "another payee would be paid")
	changed("network", parameterNetwork, "payments would be made on another network")
	changed("token", parameterToken, "payments would be made in another token")
	if p.current.parameters[parameterSelling] == "no" && p.file.Parameters[parameterSelling] == "yes" {
		since := p.current.updatedAt.UTC().Format(time.RFC3339)
		all = append(all, change{"selling", "no since " + since, "yes", "somebody has stopped selling, and this would start it again"})
	}
	if from, to := p.tables(); from != to {
		all = append(all, change{"ledger", from, to, "the ledger knows what is in doubt, owed and answered, and another table does not"})
	}
	for _, op := range p.code.Operations {
		if is := p.price(op); is != unknownValue && is != "" && is != op.Amount {
			all = append(all, change{"price", op.Slug + ":" + is, op.Amount, "the price would change"})
		}
	}
	return all
}

// checkAllowed returns an error if the deployment must not be made. The error says why. If the
// stack's file can allow the deployment, the error also says what to write into the file.
func (p plan) checkAllowed() error {
	var faults []error
	from, to := p.tables()
	sells := p.current.parameters[parameterSelling] != "no" || p.file.Parameters[parameterSelling] != "no"
	if p.current.exists && from != to && sells {
		faults = append(faults, fmt.Errorf("the ledger would change from %s to %s while something is sold, and until the change is complete, two tables would have the same payee: deploy Selling = \"no\" first, then the other table, and sell again when reconcile has read the chain for that table (infra/RUNBOOK.md, Restoring the table)", from, to))
	}
	var entries []string
	for _, c := range p.changes() {
		if !slices.Contains(p.file.Allow, c.entry()) {
			faults = append(faults, fmt.Errorf("%s: from %s to %s", c.meaning, formatValue(c.from), formatValue(c.to)))
			entries = append(entries, fmt.Sprintf("%q", c.entry()))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	reasons := errors.Join(faults...)
	if len(entries) > 0 {
		return fmt.Errorf("refused, and nothing is deployed:\n%w\nIf you mean it, say so in %s/%s.toml:\n  allow = [%s]", reasons, stackfile.Folder, p.file.Name, strings.Join(entries, ", "))
	}
	return fmt.Errorf("refused, and nothing is deployed:\n%w", reasons)
}

// notes returns what a person should know before confirming.
func (p plan) notes() (all []string) {
	var needed []string
	terms := false
	for _, c := range p.changes() {
		needed = append(needed, c.entry())
		terms = terms || c.name == "payee" || c.name == "price"
	}
	for _, entry := range p.file.Allow {
		if !slices.Contains(needed, entry) {
			all = append(all, fmt.Sprintf("allow has %q, which is no longer needed: remove it", entry))
		}
	}
	if terms && p.file.Parameters[parameterFormer] == "" {
		all = append(all, "FormerTerms is empty: payments signed for the former payee or price will be refused (402)")
	}
	if p.current.exists && p.currentAnswers == nil {
		all = append(all, "the running deployment did not answer, so its prices are not compared")
	}
	return all
}
