// The SSL Inspector, /v1/tools/ssl-check, as a Lambda function.
package main

import (
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() { boot.Priced(service.SSLCheck) }
