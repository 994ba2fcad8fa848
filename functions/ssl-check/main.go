// SSL Inspector, /v1/tools/ssl-check, as a Lambda function. make update writes this file.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler {
		certificates := ssl.New(ssl.Config{Connector: c.Connector})
		return c.Seller.Handler(service.SSLCheck(certificates))
	})
}
