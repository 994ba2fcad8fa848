package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// difference is a value of a deployment that differs from the value in the stack's file or in
// the code.
type difference struct{ name, got, want string }

func (d difference) String() string {
	return fmt.Sprintf("%s is %s, and should be %s", d.name, formatValue(d.got), formatValue(d.want))
}

// maxShown limits how much of a value is shown, in bytes.
const maxShown = 80

// formatValue returns a value as messages show it: clipped to maxShown bytes, or "(nothing)"
// if it is empty.
func formatValue(value string) string {
	if value == "" {
		return "(nothing)"
	}
	return untrusted.Clip(value, maxShown)
}

// differences returns every value in the answers of a deployment that differs from the stack's
// file or from the code.
func (a answers) differences(f stackfile.File, c code) (all []difference) {
	differs := func(what, is, want string) {
		d := difference{what, is, want}
		if !strings.EqualFold(is, want) && !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	asset := f.Parameters[parameterToken]
	if asset == "" {
		asset = x402.Network(f.Parameters[parameterNetwork]).USDC.Asset
	}
	for _, op := range c.Operations {
		offer := a.offers[op.Slug]
		differs("the payee of "+op.Slug, offer.PayTo, f.Parameters[parameterPayee])
		differs("the network of "+op.Slug, offer.Network, f.Parameters[parameterNetwork])
		differs("the token of "+op.Slug, offer.Asset, asset)
		differs("the price of "+op.Slug, offer.Amount, op.Amount)
	}
	if op, found := c.withoutParameters(); found {
		differs("the payee of the tools", a.toolTerms.PayTo, f.Parameters[parameterPayee])
		differs("the network of the tools", a.toolTerms.Network, f.Parameters[parameterNetwork])
		differs("the price of the tool "+op.Tool, a.toolTerms.Amount, op.Amount)
	}
	if len(a.payees) == 0 {
		differs("the payee in the documents", "", f.Parameters[parameterPayee])
	}
	for _, payee := range a.payees {
		differs("the payee in the documents", payee, f.Parameters[parameterPayee])
	}
	differs("the version", a.version, c.Version)
	if is := a.sellingValue(); is != f.Parameters[parameterSelling] {
		differs("selling", strings.TrimSpace(is+" "+a.facilitator.Message), f.Parameters[parameterSelling])
	}
	return all
}

// sellingValue returns the value of the parameter Selling that the deployment seems to have,
// according to /ready. A deployment with the value "no" has no facilitator, so /ready calls
// the facilitator misconfigured. If the facilitator is not ready for another reason,
// sellingValue returns that reason.
func (a answers) sellingValue() string {
	switch {
	case a.facilitator.Status == "ok":
		return "yes"
	case a.facilitator.Code == string(fault.FacilitatorMisconfigured):
		return "no"
	case a.facilitator.Status == "":
		return "not known"
	}
	return strings.TrimSpace(a.facilitator.Status + " " + a.facilitator.Code)
}

// differences returns every value in AWS's description of a stack that differs from the
// stack's file.
func (r stackState) differences(f stackfile.File) (all []difference) {
	for _, name := range names(f.Parameters) {
		is, known := r.parameters[name]
		if known && is != f.Parameters[name] {
			all = append(all, difference{name, is, f.Parameters[name]})
		}
	}
	named := f.Parameters[parameterLedger]
	if table := r.outputs[outputLedger]; r.exists && named != "" && table != named {
		all = append(all, difference{"the ledger's table", table, named})
	}
	return all
}

// originOf returns the origin of a stack from its file, or from AWS if the file has none.
func originOf(f stackfile.File, r stackState) string {
	if base := f.Parameters["BaseUrl"]; base != "" {
		return base
	}
	return r.outputs[outputOrigin]
}
