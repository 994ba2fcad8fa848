// Uptime check bundle, /v1/bundles/uptime-check, as a Lambda function. make update writes this file.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler {
		certificates := ssl.New(ssl.Config{Connector: c.Connector})
		responses := headers.New(c.Origins())
		return c.Seller.Handler(service.UptimeCheck(bundle.Uptime{
			Connector: c.Connector,
			DNS:       c.Resolver,
			SSL:       certificates,
			Headers:   responses,
		}))
	})
}
