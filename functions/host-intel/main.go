// Host intelligence bundle, /v1/bundles/host-intel, as a Lambda function. make update writes this file.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler {
		certificates := ssl.New(ssl.Config{Connector: c.Connector})
		registries := registry.New(c.Registries())
		return c.Seller.Handler(service.HostIntel(bundle.HostIntel{
			DNS:   c.Resolver,
			SSL:   certificates,
			Whois: registries,
		}))
	})
}
