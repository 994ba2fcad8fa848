package boot

import (
	"context"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// readyKey is a key of the ledger's table that no record has. Only reading it is
// allowed to those who ask whether the ledger answers.
const readyKey = "ready"

// probes ask what the service needs: the ledger by a reading, one of the
// facilitators with its credentials for what it supports, the resolvers, and the chain, without which
// the service answers as well. view is nil where the chain is not asked.
func (c Config) probes(books *ledger.Ledger, settle settlers, resolver *dns.Client, view *chain.Nodes) []service.Probe {
	all := []service.Probe{
		{Name: service.ProbeLedger, Check: func(ctx context.Context) error {
			_, err := books.Fetch(ctx, readyKey)
			return err
		}},
		{Name: service.ProbeFacilitator, Check: func(ctx context.Context) error { return settle.Supported(ctx, c.Terms.Network) }},
		{Name: service.ProbeResolvers, Check: resolver.Probe},
	}
	if view != nil {
		all = append(all, service.Probe{Name: service.ProbeChain, Check: view.Probe, Optional: true})
	}
	return all
}
