// Redirect Tracer, /v1/tools/resolve-redirect, as a Lambda function. make update writes this file.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler {
		return c.Seller.Handler(service.ResolveRedirect(redirect.New(c.Origins())))
	})
}
