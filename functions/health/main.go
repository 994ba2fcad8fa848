// /health and /ready, as a Lambda function.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler { return c.Health() })
}
