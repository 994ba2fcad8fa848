// WHOIS Intelligence, /v1/tools/whois, as a Lambda function. make update writes this file.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler {
		registries := registry.New(c.Registries())
		return c.Seller.Handler(service.Whois(registries))
	})
}
