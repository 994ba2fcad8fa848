// The host intelligence bundle, /v1/bundles/host-intel, as a Lambda function.
package main

import (
	"github.com/hostfacts/hostfacts/pkg/boot/registry"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() { registry.Priced(service.HostIntel) }
