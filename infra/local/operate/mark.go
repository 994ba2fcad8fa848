package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// markLedger marks LEDGER_TABLE as the ledger of STACK_NAME, whose payee is PAY_TO. It first
// prints whether anything was ever sold with the table, because an empty table that has
// replaced the ledger looks like the table of a new stack. If the stack has no BASE_URL, the
// operator can type the origin at which reconcile checks the service from the outside.
func markLedger(ctx context.Context, o order) error {
	c, err := boot.ParseLocal(o.getenv)
	switch {
	case err != nil:
		return err
	case c.Ledger.Name == "":
		return errors.New("LEDGER_TABLE is not set: it names the table to mark. A ledger in a file needs no mark")
	case c.Stack == "":
		return errors.New("STACK_NAME is not set: it names the stack whose ledger the table is")
	case !c.PayeeGiven:
		return errors.New("PAY_TO is not set: it is the address that the stack has as PayTo")
	}
	origin, err := o.typedOrigin()
	if err != nil {
		return err
	}
	sold, err := o.soldSince(ctx, c)
	if err != nil {
		return err
	}
	printFacts(o.out, "ledger", "DynamoDB table "+c.Ledger.Name, "stack", c.Stack, "sold", sold)
	principal, err := o.principalOf(c.Ledger)
	if err != nil {
		return err
	}
	who, err := nameOf(ctx, principal, "the mark")
	if err != nil {
		return err
	}
	mark := boot.Mark{
		Stack:   c.Stack,
		Payee:   c.Terms.PayTo,
		Origin:  origin,
		Written: o.now(),
		By:      who,
	}
	before, err := c.Ledger.SetMark(ctx, mark, o.force)
	switch {
	case before != nil:
		printFacts(o.out, "before", fmt.Sprintf("marked for %s, %s by %s", cellText(before.Payee), formatMinute(before.Written), cellText(before.By)))
	case err == nil:
		printFacts(o.out, "before", "no mark of this stack")
	}
	if errors.Is(err, boot.ErrMarked) {
		return fmt.Errorf("%w; nothing was written. If the stack's payee was changed to %s: %s",
			err, mark.Payee, o.invocation.Command("mark-ledger", called.Word{Name: "FORCE", Flag: "-force"}))
	}
	if err != nil {
		return err
	}
	printFacts(o.out, "now", "marked for "+mark.Payee)
	return nil
}

// typedOrigin returns the origin from the command line, or "".
func (o order) typedOrigin() (string, error) {
	if len(o.args) == 0 {
		return "", nil
	}
	u, err := originOf(o.args[0])
	if err != nil {
		return "", err
	}
	return "https://" + strings.ToLower(u.Host), nil // a public origin is always https
}

// soldSince returns a text that says since when payments in the token have been recorded in
// the table, or that none was ever recorded.
func (o order) soldSince(ctx context.Context, c boot.Local) (string, error) {
	key := ledger.SoldKey(strings.ToLower(c.Terms.Network), strings.ToLower(c.Terms.Asset))
	r, err := c.Ledger.Open().Fetch(ctx, key)
	if err != nil {
		return "", err
	}
	if r == nil {
		return "never; if the stack has sold before, this table is not its ledger", nil
	}
	return "since " + formatMinute(r.Head().CreatedAt), nil
}
