package registry_test

import (
	"log/slog"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/boot/registry"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func TestExtend(t *testing.T) {
	local, err := boot.ReadLocal(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	d, err := local.Deps(boot.Stores{Ledger: &ledgertest.Memory{}, Limits: &limit.Memory{}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if d.Whois != nil {
		t.Fatal("boot links the registry lookup by itself")
	}
	if err := registry.Extend(local.Config, &d); err != nil || d.Whois == nil {
		t.Errorf("%v, %v", d.Whois, err)
	}
	local.BootstrapURL = "ftp://host/dns.json"
	if err := registry.Extend(local.Config, &service.Deps{Connector: d.Connector}); err == nil {
		t.Error("an odd bootstrap URL is taken")
	}
}
