// HTTP Headers, /v1/tools/headers, as a Lambda function.
package main

import (
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() { boot.Priced(service.Headers) }
