// HTTP Headers, /v1/tools/headers, as a Lambda function. make update writes this file.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() {
	boot.Serve(func(p boot.Parts) http.Handler {
		fetched := headers.New(p.Origins())
		return p.Seller.Handler(service.Headers(fetched))
	})
}
