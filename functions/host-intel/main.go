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
	boot.Serve(func(p boot.Parts) http.Handler {
		certificates := ssl.New(ssl.Config{Connector: p.Connector})
		registries := registry.New(p.Registries())
		return p.Seller.Handler(service.HostIntel(bundle.HostIntel{DNS: p.Resolver, SSL: certificates, Whois: registries}))
	})
}
