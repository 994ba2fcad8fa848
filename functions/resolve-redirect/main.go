// The Redirect Tracer, /v1/tools/resolve-redirect, as a Lambda function.
package main

import (
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() { boot.Priced(service.ResolveRedirect) }
