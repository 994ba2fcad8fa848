// HTTP Headers, /v1/tools/headers, as a Lambda function. make update writes this file.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler {
		responses := headers.New(c.Origins())
		return c.Seller.Handler(service.Headers(responses))
	})
}
