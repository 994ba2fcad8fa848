// Command health is the Lambda function that answers /health and /ready.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler { return c.Health() })
}
