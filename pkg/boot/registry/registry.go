// Package registry runs the functions that ask a domain registry. It is apart
// from boot because the RDAP library adds four megabytes to whatever links it.
package registry

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/dynamo"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// Priced runs a priced function that asks a registry. It does not return.
func Priced(build service.Constructor) { boot.Priced(build, Extend) }

// Extend adds the registry lookup. The bootstrap file is kept in the ledger's
// table where there is one, so that a new process need not ask IANA.
func Extend(c boot.Config, d *service.Deps) error {
	if c.BootstrapURL != "" {
		if _, err := registry.ParseBootstrapURL(c.BootstrapURL); err != nil {
			return err
		}
	}
	config := registry.Config{
		Connector: d.Connector, BootstrapURL: c.BootstrapURL, Now: time.Now, UserAgent: boot.UserAgent, Log: d.Log,
	}
	if c.Ledger.Name != "" {
		config.Cache = dynamo.New(dynamo.Config{API: c.Ledger.Client(), Table: c.Ledger.Name})
	}
	d.Whois = registry.New(config)
	return nil
}
