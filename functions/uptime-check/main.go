// The uptime check bundle, /v1/bundles/uptime-check, as a Lambda function.
package main

import (
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/service"
)

func main() { boot.Priced(service.UptimeCheck) }
