package x402http

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Config says who is paid, which service settles payments, and where they are recorded.
// PayTo, Facilitator, Ledger, and Origin or OriginOf, are required; everything else has a default.
type Config struct {
	// PayTo is the account that is paid: 0x and 40 hexadecimal digits, in one letter case or
	// with the checksum of EIP-55. All programs that are paid on it must share Ledger:
	// otherwise each may answer what another was paid for, and Reconcile lists what the
	// others received as refunds that are due.
	PayTo string
	// Facilitator is the https URL of the service that settles; http is for this machine only.
	// On x402.BaseSepolia it is a public one unless it is set.
	Facilitator string
	// Credentials are sent to Facilitator; the zero value sends none.
	Credentials facilitator.Credentials
	// Ledger records every payment: file.Open or dynamo.Open, or ledgertest.Memory in
	// tests. A lost record can cost an answer, or a second charge. Answers are kept up to a
	// length, compressed: 1 MB in a file, and 32 KB in a table unless dynamo.Keep sets more.
	Ledger ledger.Store

	// Network is where payments are made (CAIP-2): x402.Base, which is the default, or
	// x402.BaseSepolia, whose money is worth nothing. Both bring their USDC and their public
	// node; see x402.Networks.
	Network string
	// Asset is another token's contract, and AssetName and AssetVersion its EIP-712 domain.
	// On another network all three are needed.
	Asset, AssetName, AssetVersion string
	// Decimals of the asset; 0 is 6, those of USDC.
	Decimals int

	// Origin is the public origin of the program, such as https://shop.example, or
	// http://127.0.0.1:8080 for a trial. It is a part of a purchase.
	Origin string
	// OtherOrigins are further origins of the program. A request whose Host is that of one of
	// them is at that origin. Every other request is at Origin, whatever its Host says, because
	// a client can write anything there.
	OtherOrigins []string
	// OriginOf takes the place of both on a platform that knows the origin of each request. It
	// must not go by the Host header alone.
	OriginOf func(*http.Request) string
	// Name and Description tell in offers what is sold.
	Name, Description string
	// Budget is how long a handler may run. Then its context ends, and its client is answered
	// that the answer is owed. 0 means 10 s, and 12 s is the most, because a request with the
	// settlement of its payment has 27 s.
	Budget time.Duration
	// Window is how long after an answer another payment of the same payer for the same
	// request, without an Idempotency-Key, counts as the same purchase; 0 means 45 s, and
	// a negative value not at all. Over MCP it is twice that, because clients give up after
	// 60 s and call again.
	Window time.Duration
	// Client names the client of a request, for PerMinute and Concurrent: an IP address, with
	// or without a port, or any other name. Nil is the address that the
	// connection came from. Behind a proxy or a load balancer that is the proxy's, so that all
	// clients share one limit: then return what the proxy says, such as the last element of
	// X-Forwarded-For that your own proxy has added. A header that clients can write
	// themselves lets each of them have as many limits as it likes.
	Client func(*http.Request) string
	// PerMinute are the units of one client. A request is one unit, and a payment that fails
	// by its payer's fault up to twenty; 0 means 300, and a negative value no limit.
	PerMinute int
	// Concurrent is how many runs of all handlers there are at once; 0 means 50, 100 is the
	// most, and a negative value no limit. A handler that still runs after its Budget counts.
	Concurrent int
	// Limits counts both for several processes; nil counts in this one.
	Limits limit.Store

	// Evidence reads the chain; nil is the public node of the network, where one is known,
	// which promises nothing. chain.New makes one of your own nodes, and Evidence of package
	// x402test one for play money. A node that is down delays answers and decides nothing.
	Evidence x402.Evidence
	// NoNode leaves the chain out, so that the facilitator alone tells what became of a payment.
	// What that costs: a payment whose settlement is not confirmed can stay in doubt
	// until its client repeats it. It counts as paid if the facilitator says that its
	// authorization was used, so that a payer whose payment was refused and who then cancels
	// the authorization gets one answer that nobody paid for. A refusal is never disproved:
	// where the money moved all the same, the payer is charged again for another payment.
	// Without a node a doubt alone is sent again, whatever a Check says, and if that moves the
	// money the handler runs. Reconcile counts the refused payments (Summary.Unproven), and
	// decides no doubt.
	NoNode bool
	// Settler takes the place of Facilitator and Credentials: x402.One of another client, or
	// a fallback.Pair, which asks a second facilitator when the first one fails.
	Settler x402.Settler
	// Receipts sign offers and answers; nil is none.
	Receipts x402.Receipts

	// Log has a line of every request; nil is slog.Default.
	Log *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// RequestID names a request in its response and in the log; nil draws a name at random.
	RequestID func(*http.Request) string
	// Header may add to the headers of a response before it is written; nil adds none.
	Header func(http.Header)
	// Random is where retry tokens come from; nil is crypto/rand.
	Random io.Reader
	// Service is for the programs of this module. Leave it nil.
	Service *storefront.Service
}

// front is what every response has in common.
func (c *Config) front() storefront.Front {
	front := c.Service.Front
	front.Log = c.Log
	front.Now = c.Now
	front.Client = c.Client
	if c.RequestID != nil {
		front.RequestID = c.RequestID
	}
	if c.Header != nil {
		front.Header = func(_ *http.Request, h http.Header) { c.Header(h) }
	}
	front.Fill()
	return front
}

// isService says that a program of this module sells.
func (c *Config) isService() bool { return c.Service.Describe != nil }

// rate counts the requests of clients; nil counts nothing.
func (c *Config) rate() *limit.Rate {
	if c.Service.Rate != nil || c.PerMinute == 0 {
		return c.Service.Rate
	}
	return limit.NewRate(c.PerMinute, c.Limits, c.Now)
}

func (c *Config) fill() {
	c.Decimals = cmp.Or(c.Decimals, 6)
	c.Budget = cmp.Or(c.Budget, 10*time.Second)
	c.Window = max(cmp.Or(c.Window, 45*time.Second), 0)
	c.PerMinute = max(cmp.Or(c.PerMinute, 300), 0)
	c.Concurrent = max(cmp.Or(c.Concurrent, 50), 0)
	if c.Limits == nil {
		c.Limits = &limit.Memory{}
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Service == nil {
		c.Service = &storefront.Service{}
	}
}

// check makes the Settler of Facilitator and the function of the origins, and returns what is
// wrong with the settings.
func (c *Config) check(t x402.Terms) error {
	var wrong problems
	err := x402.CheckAddress(c.PayTo, t.Asset)
	wrong.unless(err == nil, "PayTo", fmt.Sprintf("%q, which %v", c.PayTo, err), "the address that is paid")
	if c.Settler == nil {
		ok := c.fillSettler(t)
		wrong.unless(ok, "Facilitator", strconv.Quote(c.Facilitator), "an https URL, or an http URL of this machine")
	}
	wrong.unless(c.Ledger != nil, "Ledger", "missing", "one of package ledger/file, or a DynamoDB table")
	wrong.unless(c.Budget > 0 && c.Budget <= 12*time.Second, "Budget", c.Budget, "more than 0 and at most 12s")
	if c.OriginOf == nil {
		origins, err := newOrigins(c.Origin, c.OtherOrigins)
		wrong = append(wrong, err)
		c.OriginOf = origins.of
	} else {
		alone := c.Origin == "" && len(c.OtherOrigins) == 0
		wrong.unless(alone, "Origin", "set beside OriginOf", "empty where that is set")
	}
	wrong.unless(c.Concurrent <= limit.MaxCap, "Concurrent", c.Concurrent, fmt.Sprint("at most ", limit.MaxCap))
	wrong.unless(c.Decimals > 0 && c.Decimals <= 36, "Decimals", c.Decimals, "from 1 to 36")
	return errors.Join(wrong...)
}

// problems are what is wrong with settings.
type problems []error

// unless adds a setting that is not what it must be.
func (p *problems) unless(ok bool, setting string, is any, must string) {
	if !ok {
		*p = append(*p, fmt.Errorf("x402http: %s is %v, and must be %s", setting, is, must))
	}
}

// fillSettler makes the Settler of Facilitator. It is not ok where the URL cannot be used.
func (c *Config) fillSettler(t x402.Terms) (ok bool) {
	c.Facilitator = cmp.Or(c.Facilitator, x402.Network(t.Network).Facilitator)
	client, err := facilitator.New(facilitator.Config{
		URL:         c.Facilitator,
		Credentials: c.Credentials,
		Now:         c.Now,
	})
	c.Settler = x402.One(client)
	if err != nil {
		return false
	}
	u, err := url.Parse(c.Facilitator)
	if err != nil {
		return false
	}
	addr, _ := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || addr.IsLoopback()
	return u.Scheme == "https" || local
}
