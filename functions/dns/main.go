// DNS Explorer, /v1/tools/dns, as a Lambda function. make update writes this file.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler {
		return c.Seller.Handler(service.DNS(c.Resolver))
	})
}
