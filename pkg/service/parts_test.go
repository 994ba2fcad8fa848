package service_test

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// parts are what a service of these tests is made of. A test changes those that
// it is about.
type parts struct {
	service.Platform
	service.Offering
	Ledger      *ledger.Ledger
	Facilitator x402.Facilitator
	Evidence    x402.Evidence
	Scanner     x402.Scanner
	Index       ledger.Index
	Limits      service.Limits
	DNS         service.Looker[dns.Query, dns.Result]

	perMinute, slots int // limits of a shop; 0 is none
}

// platform is one that discards its log.
func platform() service.Platform {
	return service.Platform{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Random: rand.Reader,
		Origin:    func(*http.Request) string { return "https://api.example.com" },
		RequestID: func(*http.Request) string { return rand.Text() },
	}
}

func (p parts) seller() *service.Seller {
	return service.NewSeller(p.Platform, p.Offering, p.Ledger, p.Facilitator, nil, p.Evidence, p.Limits)
}

// whole is every function.
func (p parts) whole(t *testing.T) http.Handler {
	t.Helper()
	h, err := service.All(p.seller(), every(t, p.DNS),
		service.Health(p.Platform, p.Offering, nil, nil), service.Discovery(p.Platform, p.Offering, p.Limits.Rate))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (p parts) reconciler() *x402.Reconciler {
	return service.Reconciler(p.Platform, p.Terms, p.Ledger, p.Index, p.Evidence, p.Scanner)
}

// every is every operation as the deployment makes it, but for the DNS
// Explorer, which asks c.
func every(t *testing.T, c service.Looker[dns.Query, dns.Result]) []service.Operation {
	t.Helper()
	local, err := boot.ReadLocal(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	stores := boot.Stores{Ledger: &ledgertest.Memory{}, Limits: &limit.Memory{}}
	local.FacilitatorURL = "http://127.0.0.1:1" // nobody asks it
	p, err := local.Parts(stores, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	all := operations.All(p)
	for i, op := range all {
		if op.Entry().Slug == catalog.DNS().Slug {
			all[i] = service.DNS(c)
		}
	}
	return all
}
