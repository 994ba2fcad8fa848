// Package operations creates all priced operations with their clients, for a program that
// serves all of them. A deployed function serves only one operation. Its main package creates
// that operation itself, so that it links only the clients of that operation.
package operations

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// All returns every operation of the catalog.
func All(c boot.Components) []service.Operation {
	certificates := ssl.New(ssl.Config{Connector: c.Connector})
	responses := headers.New(c.Origins())
	registries := registry.New(c.Registries())
	return []service.Operation{
		service.DNS(c.Resolver),
		service.SSLCheck(certificates),
		service.Whois(registries),
		service.Headers(responses),
		service.ResolveRedirect(redirect.New(c.Origins())),
		service.HostIntel(bundle.HostIntel{
			DNS:   c.Resolver,
			SSL:   certificates,
			Whois: registries,
		}),
		service.UptimeCheck(bundle.Uptime{
			Connector: c.Connector,
			DNS:       c.Resolver,
			SSL:       certificates,
			Headers:   responses,
		}),
		service.Ping(),
	}
}

// Handler returns a handler for the whole service.
func Handler(c boot.Components) (http.Handler, error) {
	return service.All(c.Seller, All(c), c.Health(), c.Documents())
}
