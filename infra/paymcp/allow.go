package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// These limits are proposed to a person when the token is USDC.
const (
	proposedPerCall = "0.10"
	proposedPerDay  = "1.00"
)

// payee is a recipient of payments on one network, in one token.
type payee struct{ payTo, network, asset string }

// allow asks a person whom this program may pay and how much, and saves the answers.
func (t *till) allow(ctx context.Context) error {
	if !t.terminal {
		return errors.New("allow decides to whom this program pays real money, so it needs a person at a terminal, and standard input is not a terminal")
	}
	_, tools, err := t.upstream.tools(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s sells:\n", t.serverURL)
	offers := map[payee]bill.Way{}
	var order []payee
	for _, tool := range tools {
		w, err := t.priceOf(ctx, tool)
		if err != nil {
			fmt.Fprintf(t.out, "  %-28s no price without arguments (%s)\n", untrusted.Text(tool.Name), untrusted.Text(err.Error()))
			continue
		}
		fmt.Fprintf(t.out, "  %-28s %s\n", untrusted.Text(tool.Name), w.Price())
		k := payee{strings.ToLower(w.PayTo), w.Network, strings.ToLower(w.Asset)}
		if _, there := offers[k]; !there {
			offers[k] = w
			order = append(order, k)
		}
	}
	if len(order) == 0 {
		return errors.New("no tool asks for a payment in a way that this program supports; nothing is allowed")
	}
	dialog := dialog{bufio.NewReader(io.LimitReader(t.in, 16<<10)), t.out}
	chosen := order[0]
	for i, k := range order {
		fmt.Fprintf(t.out, "%d. to %s, the token %s on %s\n", i+1, offers[k].PayTo, untrusted.Text(offers[k].Asset), offers[k].NetworkName())
	}
	if len(order) > 1 {
		n, err := strconv.Atoi(dialog.ask("Which of them may be paid?", "1"))
		if err != nil || n < 1 || n > len(order) {
			return errors.New("that is none of them; nothing is allowed")
		}
		chosen = order[n-1]
	}
	return t.askForLimits(dialog, offers[chosen])
}

// askForLimits asks a person for the limits of payments to the payee of w, and for the key
// that pays. It saves the answers as the allowance.
func (t *till) askForLimits(d dialog, w bill.Way) error {
	perCall, err := parseAmount(d.ask("Maximum for one call, "+unitOf(w)+"?", defaultLimit(w, proposedPerCall)), w)
	if err != nil {
		return err
	}
	perDay, err := parseAmount(d.ask("Maximum in any 24 hours, "+unitOf(w)+"?", defaultLimit(w, proposedPerDay)), w)
	if err != nil {
		return err
	}
	path, err := filepath.Abs(d.ask("The file with the private key of the wallet that pays (hex, mode 0600)?", ""))
	if err != nil {
		return err
	}
	wallet, err := bill.ReadKey(path)
	if err != nil {
		return fmt.Errorf("the key cannot be used: %w", err)
	}
	terms := buyer.Terms{PayTo: w.PayTo, Network: w.Network, Asset: w.Asset}
	fmt.Fprintf(t.out, "%s pays %s on %s: at most %s per call and %s in any 24 hours, without asking again.\n",
		wallet.Address().Checksum(), w.PayTo, w.NetworkName(), terms.Amount(perCall), terms.Amount(perDay))
	if answer := strings.ToLower(d.ask("Allow this? [yes/no]", "no")); answer != "yes" && answer != "y" {
		return errors.New("cancelled; nothing is allowed")
	}
	err = t.purse.Allow(purse.Allowance{
		Server:  t.serverURL.String(),
		PayTo:   w.PayTo,
		Network: w.Network,
		Asset:   w.Asset,
		PerCall: perCall.String(),
		PerDay:  perDay.String(),
		KeyFile: path,
		Allowed: t.now().UTC(),
	})
	if err != nil {
		return fmt.Errorf("write it down: %w; nothing is allowed", err)
	}
	fmt.Fprintf(t.out, "Allowed, as recorded in %s; delete that file to revoke it. To see what to paste into a host: %s\n", t.purse.AllowanceFile(), t.commandLine("config"))
	return nil
}

// priceOf returns the price of a tool. If the tool lists no price, priceOf asks the server for
// the price of a call without arguments.
func (t *till) priceOf(ctx context.Context, tool *mcp.Tool) (bill.Way, error) {
	w, err := listedPrice(tool)
	if err == nil {
		if _, err = x402.ParseAddress(w.PayTo); err == nil {
			return w, nil
		}
	}
	o, err := buyer.Quote(ctx, t.upstream, buyer.Request{
		Tool:      tool.Name,
		Arguments: json.RawMessage("{}"),
		Meta:      map[string]any{},
	})
	if err != nil {
		return bill.Way{}, err
	}
	return o.Choose()
}

// dialog asks a person questions at a terminal.
type dialog struct {
	in  *bufio.Reader
	out io.Writer
}

// ask asks a question and returns what the person types. If the person types an empty line,
// ask returns defaultAnswer.
func (d dialog) ask(question, defaultAnswer string) string {
	if defaultAnswer != "" {
		question += " [" + defaultAnswer + "]"
	}
	fmt.Fprint(d.out, untrusted.Text(question), " ")
	line, _ := d.in.ReadString('\n') // at the end of input, the answer is empty
	if line = strings.TrimSpace(line); line == "" {
		return defaultAnswer
	}
	return line
}

func unitOf(w bill.Way) string {
	if w.USDC {
		return "in USDC"
	}
	return "in atomic units of the token"
}

func defaultLimit(w bill.Way, defaultInUSDC string) string {
	if w.USDC {
		return defaultInUSDC
	}
	return w.Amount
}

// parseAmount parses an amount that a person typed in the unit that unitOf names. It returns
// the amount in atomic units.
func parseAmount(typed string, w bill.Way) (*big.Int, error) {
	const longest = 40
	r, ok := new(big.Rat).SetString(typed)
	if !ok || len(typed) > longest || strings.ContainsAny(typed, "eE/_xX") || r.Sign() < 0 {
		return nil, fmt.Errorf("%s is not an amount; nothing is allowed", untrusted.Quote(typed, longest))
	}
	if w.USDC {
		r.Mul(r, big.NewRat(bill.Unit, 1))
	}
	if !r.IsInt() {
		return nil, fmt.Errorf("%s has more decimals than the token; nothing is allowed", untrusted.Quote(typed, longest))
	}
	return r.Num(), nil
}

// formatAmount formats an amount of a token for a person.
func formatAmount(atomic *big.Int, network, asset string) string {
	w := bill.Way{Requirements: x402.Requirements{Network: network, Asset: asset}, Value: atomic}
	w.USDC = x402.Terms{Network: network, Asset: asset}.IsUSDC()
	return w.Price()
}
