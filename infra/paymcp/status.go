package main

import (
	"context"
	"fmt"

	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// printStatus prints the limits, what was signed in the last 24 hours, and every purchase
// without an answer.
func (t *till) printStatus() error {
	terms, err := t.terms()
	if err != nil {
		fmt.Fprintf(t.out, "It does not pay: %s\n", err)
	} else {
		fmt.Fprintf(t.out, "Allowed: %s a call, %s in any 24 hours\n", terms.Amount(terms.PerCall), terms.Amount(terms.PerDay))
	}
	signed, err := t.purse.RecentEntries()
	if err != nil {
		return err
	}
	type token struct{ network, asset string }
	seen := map[token]bool{}
	for _, e := range signed {
		if k := (token{e.Network, e.Asset}); !seen[k] {
			seen[k] = true
			fmt.Fprintf(t.out, "Signed in the last 24 hours: %s\n", formatAmount(purse.Sum(signed, e.Network, e.Asset), e.Network, e.Asset))
		}
	}
	if len(signed) == 0 {
		fmt.Fprintln(t.out, "Signed in the last 24 hours: nothing")
	}
	all, err := t.purse.Purchases()
	open := 0
	for _, c := range all {
		if c.Answer != nil || c.Payment == nil {
			continue
		}
		open++
		fmt.Fprintf(t.out, "\nNo answer: %s %s\n  %s, signed %s, may be executed until %s\n  %s\n  The same call continues it. If you know that it was not charged: %s\n",
			untrusted.Text(c.Tool), untrusted.Text(string(c.Arguments)), c.Payment.Price, c.Payment.Signed.UTC().Format("2006-01-02 15:04:05"),
			c.Payment.ValidBefore.UTC().Format("2006-01-02 15:04:05 UTC"), untrusted.Text(c.Payment.Said), t.commandLine("forget", c.ID()))
	}
	if open == 0 {
		fmt.Fprintln(t.out, "Every purchase has its answer.")
	}
	return err
}

// forget removes a purchase without an answer. It does not check whether the purchase was
// charged: the person who calls it must know that the purchase was not charged.
func (t *till) forget(ctx context.Context, id string) error {
	all, err := t.purse.Purchases()
	for _, c := range all {
		if c.ID() != id || c.Answer != nil {
			continue
		}
		held, release, err := t.purse.Hold(ctx, c.Server, c.Tool, c.Arguments)
		if err != nil {
			return err
		}
		defer release()
		if held.Answer != nil {
			break
		}
		fmt.Fprintf(t.out, "Forgotten: the next call of %s with these arguments is paid again. The signature still counts toward the budget for 24 hours.\n", untrusted.Text(c.Tool))
		return t.purse.Drop(held)
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("there is no purchase %s without an answer: %s lists them", untrusted.Quote(id, 80), t.commandLine("status"))
}
