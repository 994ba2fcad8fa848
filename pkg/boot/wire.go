package boot

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lambdahttp"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// UserAgent names the service to those it calls.
const UserAgent = catalog.Service + "/" + catalog.APIVersion + " (+" + catalog.Homepage + ")"

// Store opens the ledger's table.
func (t Table) Store() ledger.Store {
	return dynamo.New(dynamo.Config{API: t.Client(), Table: t.Name})
}

// Client is a client for the table's region or endpoint.
func (t Table) Client() *dynamodb.Client {
	return dynamo.NewClient(dynamo.ClientConfig{Region: t.Region, Credentials: t.Credentials, Endpoint: t.Endpoint})
}

// Deps wires the service over its stores. What it logs of a peer's text is fit
// to be read, whatever handler log has.
func (c Config) Deps(stores Stores, log *slog.Logger) (service.Deps, error) {
	log = printable.Log(log)
	settler, err := facilitator.New(facilitator.Config{
		URL: c.FacilitatorURL, Credentials: c.Credentials, Now: time.Now, Logger: log, UserAgent: UserAgent,
	})
	if err != nil {
		return service.Deps{}, err
	}
	resolver := dns.New(dns.Config{Resolvers: c.Resolvers})
	d := c.free(log)
	d.Ledger = ledger.New(stores.Ledger, time.Now, randomID)
	d.Limits = c.limits(stores.Limits)
	d.Facilitator = settler
	dialer := guard.NewDialer(guard.DialerConfig{Resolver: resolver})
	origins := origin.New(origin.Config{Connector: dialer, UserAgent: UserAgent})
	d.Connector, d.DNS = dialer, resolver
	d.SSL = ssl.New(ssl.Config{Connector: dialer})
	d.Headers, d.Redirect = headers.New(origins), redirect.New(origins)
	d.Probes = []service.Probe{
		{Name: "ledger", Check: func(ctx context.Context) error {
			_, err := d.Ledger.Fetch(ctx, "ready")
			return err
		}},
		{Name: "facilitator", Check: func(ctx context.Context) error { return settler.Supported(ctx, c.Terms.Network) }},
		{Name: "resolvers", Check: resolver.Probe},
	}
	err = c.watch(&d)
	return d, err
}

// free is what a function without money needs.
func (c Config) free(log *slog.Logger) service.Deps {
	return service.Deps{
		Log: printable.Log(log), Now: time.Now, Origin: c.origin, RequestID: requestID,
		Warnings: c.Warnings, Stack: c.Stack, Terms: c.Terms, OwnershipProofs: c.OwnershipProofs,
		DuplicateWindow: c.DuplicateWindow,
	}
}

// origin is configuration or the domain name that the gateway vouches for:
// lambdahttp puts that one into Host, never the Host header.
func (c Config) origin(r *http.Request) string {
	if c.BaseURL != "" {
		return c.BaseURL
	}
	return "https://" + r.Host
}

// requestID is the gateway's, or one of our own.
func requestID(r *http.Request) string {
	if id := lambdahttp.RequestID(r.Context()); id != "" {
		return id
	}
	return randomID()
}

// randomID is 128 random bits in hex.
func randomID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Logger writes one JSON record a line, as Lambda and CloudWatch read them. The
// time has the name that Lambda looks for: to a line without it Lambda gives a
// time and the level INFO of its own.
func (c Config) Logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: lambdaNames}))
}

func lambdaNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		a.Key = "timestamp"
	}
	return a
}
