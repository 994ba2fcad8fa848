package boot

import (
	"fmt"
	"net/http"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/hostfacts/hostfacts/pkg/lambdahttp"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// Priced runs a priced function, or health, which looks at the same parts. It
// does not return; a configuration that cannot work ends the process with
// every fault named, which Lambda reports as an init error. extend adds what
// only some functions link.
func Priced(build service.Constructor, extend ...Extend) {
	config, err := readPriced(os.Getenv)
	exitOn(err)
	log := config.Logger(os.Stdout)
	deps, err := config.Deps(config.Ledger.Stores(), log)
	exitOn(err)
	for _, add := range extend {
		exitOn(add(config, &deps))
	}
	start(build(deps), deps)
}

// Extend adds to the dependencies of a function.
type Extend func(c Config, d *service.Deps) error

// Free runs a function that needs neither ledger nor facilitator. It counts its
// clients' requests in the ledger's table.
func Free(build service.Constructor) {
	config, err := readDiscovery(os.Getenv)
	exitOn(err)
	deps := config.free(config.Logger(os.Stdout))
	if config.Limits.PerMinute > 0 {
		deps.Limits.Rate = config.rate(config.Ledger.Stores().Limits)
	}
	start(build(deps), deps)
}

func start(h http.Handler, d service.Deps) {
	lambda.Start(lambdahttp.New(h, d.Log))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
