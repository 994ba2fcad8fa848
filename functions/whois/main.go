// WHOIS Intelligence, /v1/tools/whois, as a Lambda function.
package main

import (
	"github.com/hostfacts/hostfacts/pkg/boot/registry"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() { registry.Priced(service.Whois) }
