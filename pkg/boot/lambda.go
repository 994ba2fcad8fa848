package boot

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// Serve runs a function that works with money, made of the parts of the
// deployment. It does not return; a configuration that cannot work ends the
// process with every fault named, which Lambda reports as an init error.
func Serve(compose func(Parts) http.Handler) {
	relaxCollector()
	config, err := readFunction(os.Getenv)
	exitOn(err)
	parts, err := config.Parts(config.Ledger.Stores(), config.Logger(os.Stdout), time.Now)
	exitOn(err)
	start(compose(parts), parts.Platform.Log)
}

// Documents runs the function of the static documents, which needs neither
// ledger nor facilitator. It counts its clients' requests in the ledger's table.
func Documents() {
	relaxCollector()
	config, err := readDocuments(os.Getenv)
	exitOn(err)
	p := config.platform(config.Logger(os.Stdout), time.Now)
	var limits service.Limits
	if config.Caps.PerMinute > 0 { // else there is no table
		limits = config.limits(config.Ledger.Stores().Limits, time.Now)
	}
	start(service.Discovery(p, config.Offering, limits.Rate), p.Log)
}

// Reconcile runs the scheduled function. It does not return.
func Reconcile() {
	config, err := readFunction(os.Getenv)
	exitOn(err)
	stores := config.Ledger.Stores()
	parts, err := config.Reconciling(stores, config.Logger(os.Stdout), time.Now)
	exitOn(err)
	settle, err := config.facilitators(parts.Platform)
	exitOn(err)
	probes := config.probes(parts.Ledger, settle, dns.New(dns.Config{Resolvers: config.Resolvers}), parts.Chain)
	lambda.Start(service.Reconcile(parts.Platform, parts.Reconciler, parts.Chain != nil, probes...))
}

func start(h http.Handler, log *slog.Logger) { lambda.Start(eventHandler(h, log)) }

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// collectAt is how much the heap grows between two garbage collections, in percent
// of what is in use.
const collectAt = 400

// relaxCollector lets a function's heap grow to some 20 MB before garbage is
// collected. A function serves one request at a time and holds some 4 MB, so that with
// Go's 100 percent the collector runs several times while it starts, which takes a
// sixth of the processor time until its first answer. GOGC overrides it.
//
// The local runner serves many requests at once and holds more, of which this would
// be a multiple.
func relaxCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}
