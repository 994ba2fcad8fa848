// Package operations creates every priced operation with its client, for a program that serves
// all of them. The main of each deployed function has only one of these lines, so that it links
// only the clients of its operation.
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
func All(p boot.Parts) []service.Operation {
	certificates := ssl.New(ssl.Config{Connector: p.Connector})
	responses := headers.New(p.Origins())
	registries := registry.New(p.Registries())
	return []service.Operation{
		service.DNS(p.Resolver),
		service.SSLCheck(certificates),
		service.Whois(registries),
		service.Headers(responses),
		service.ResolveRedirect(redirect.New(p.Origins())),
		service.HostIntel(bundle.HostIntel{
			DNS:   p.Resolver,
			SSL:   certificates,
			Whois: registries,
		}),
		service.UptimeCheck(bundle.Uptime{
			Connector: p.Connector,
			DNS:       p.Resolver,
			SSL:       certificates,
			Headers:   responses,
		}),
		service.Ping(),
	}
}

// Handler returns the whole service on one mux.
func Handler(p boot.Parts) (http.Handler, error) {
	return service.All(p.Seller, All(p), p.Health(), p.Documents())
}
