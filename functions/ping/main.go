// The payment smoke test, /v1/tools/ping, as a Lambda function.
package main

import (
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() { boot.Priced(service.Ping) }
