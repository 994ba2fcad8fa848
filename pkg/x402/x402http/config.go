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

// Config says who is paid, which service settles payments, and where payments are recorded.
// PayTo, Facilitator, Ledger, and one of Origin and OriginOf are required; everything else has
// a default.
type Config struct {
	// PayTo is the account that receives the payments: 0x and 40 hexadecimal digits, either
	// all in one letter case or with the checksum of EIP-55. All programs that are paid on
	// this account must share one Ledger. Otherwise one program may give an answer for a
	// payment that was made to another program, and Reconcile lists the payments to the other
	// programs as due for a refund.
	PayTo string
	// Facilitator is the https URL of the service that settles payments; http is allowed only
	// for a service on this machine. On x402.BaseSepolia the default is a public service.
	Facilitator string
	// Credentials are sent to Facilitator. If they are the zero value, none are sent.
	Credentials facilitator.Credentials
	// Ledger records every payment. It comes from file.Open or dynamo.Open, or is a
	// ledgertest.Memory in tests. If a record is lost, the payer may lose the answer or be
	// charged twice. Answers are stored compressed. The compressed body may have up to 1 MB in
	// a file, and up to 32 KB in a table unless dynamo.Keep sets another limit; a larger
	// answer is not stored.
	Ledger ledger.Store

	// Network is the CAIP-2 name of the network on which payments are made: x402.Base, which
	// is the default, or x402.BaseSepolia, whose money is worth nothing. For each of the two,
	// this package knows the USDC contract and a public node. See x402.Networks.
	Network string
	// Asset is the contract of the token, if it is not USDC. AssetName and AssetVersion are
	// the token's EIP-712 domain. On a network that x402.Networks does not list, all three are
	// required.
	Asset, AssetName, AssetVersion string
	// Decimals is the number of decimal places of the asset; 0 means 6, as for USDC.
	Decimals int

	// Origin is the public origin of the program, such as https://shop.example, or
	// http://127.0.0.1:8080 for a trial. It is part of the identity of every purchase.
	Origin string
	// OtherOrigins are further origins of the program. A request whose Host names one of them
	// belongs to that origin. Every other request belongs to Origin, whatever its Host is,
	// because a client can write any Host.
	OtherOrigins []string
	// OriginOf replaces Origin and OtherOrigins on a platform that knows the origin of each
	// request. It must not rely on the Host header alone.
	OriginOf func(*http.Request) string
	// Name and Description appear in offers, and tell clients what is sold.
	Name, Description string
	// Budget is how long a handler may run. After that time the handler's context ends, and
	// the client is told that the answer is owed. 0 means 10 s. The maximum is 12 s, because a
	// request has 27 s in all, including the settlement of its payment.
	Budget time.Duration
	// Window applies to purchases without an Idempotency-Key. Within this time after an
	// answer, another payment of the same payer for the same request counts as the same
	// purchase. 0 means 45 s, and a negative value means that each payment is a new purchase.
	// Over MCP the time is doubled, because clients give up after 60 s and then repeat the
	// call.
	Window time.Duration
	// Client returns the name under which PerMinute and Concurrent count the client of a
	// request: an IP address, with or without a port, or any other name. Nil means the address
	// from which the connection came. Behind a proxy or a load balancer that is the address of
	// the proxy, and all clients would share one limit. In that case, return the address that
	// the proxy reports, such as the last element of X-Forwarded-For, if your own proxy has
	// added it. Do not use a header that clients can write themselves: a client could then get
	// any number of limits.
	Client func(*http.Request) string
	// PerMinute is how many units one client may use in a minute. A request costs one unit. A
	// payment that fails because of its payer costs up to twenty units. 0 means 300, and a
	// negative value means no limit.
	PerMinute int
	// Concurrent is how many runs of handlers may be in progress at once, over all handlers. 0
	// means 50, the maximum is 100, and a negative value means no limit. A handler that still
	// runs after its Budget counts as well.
	Concurrent int
	// Limits stores the counts for PerMinute and Concurrent, so several processes can share
	// them. Nil keeps them in this process.
	Limits limit.Store

	// Evidence reads the chain. Nil means the public node of the network, if one is known;
	// nobody promises that a public node answers. chain.New returns an Evidence that asks your
	// own nodes, and package x402test has one for play money. While a node is down, answers
	// are delayed, and payments in doubt stay undecided.
	Evidence x402.Evidence
	// NoNode means that the chain is not read, and only the facilitator tells what became of a
	// payment. This has a cost. A payment whose settlement is not confirmed can stay in doubt
	// until its client repeats it. A payment counts as paid if the facilitator says that its
	// authorization was used. A payer whose payment was refused, and who then cancels the
	// authorization, therefore gets one answer that nobody paid for. A refusal is never
	// disproved: if the money moved in spite of the refusal, the payer is charged again for
	// another payment. Without a node, even a payment that is only in doubt is sent again,
	// whatever a Check says. If that moves the money, the handler runs. Reconcile counts the
	// refused payments (Summary.Unproven), but does not decide the payments in doubt.
	NoNode bool
	// Settler replaces Facilitator and Credentials. Use x402.One to settle with another
	// client, or a fallback.Pair to ask a second facilitator when the first one fails.
	Settler x402.Settler
	// Receipts sign offers and answers; nil means no signatures.
	Receipts x402.Receipts

	// Log receives one line for each request; nil means slog.Default.
	Log *slog.Logger
	// Now returns the time; nil means time.Now.
	Now func() time.Time
	// RequestID returns the id of a request, which its response and the log contain; nil means
	// a random id.
	RequestID func(*http.Request) string
	// Header may add headers to a response before it is written; nil adds none.
	Header func(http.Header)
	// Random is the source of retry tokens; nil means crypto/rand.
	Random io.Reader
	// Service is for the programs of this module only. Leave it nil.
	Service *storefront.Service
}

// front returns the settings that apply to every response.
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

// isService reports whether the seller is a program of this module.
func (c *Config) isService() bool { return c.Service.Describe != nil }

// rate returns the limit on the requests of each client; nil means no limit.
func (c *Config) rate() *limit.Rate {
	if c.Service.Rate != nil || c.PerMinute == 0 {
		return c.Service.Rate
	}
	return limit.NewRate(c.PerMinute, c.Limits, c.Now)
}

func (c *Config) setDefaults() {
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

// check sets Settler and OriginOf if they are not set, and returns an error for each wrong
// setting.
func (c *Config) check(t x402.Terms) error {
	var wrong problems
	err := x402.CheckAddress(c.PayTo, t.Asset)
	wrong.require(err == nil, "PayTo", fmt.Sprintf("%q, which %v", c.PayTo, err), "the address that is paid")
	if c.Settler == nil {
		ok := c.fillSettler(t)
		wrong.require(ok, "Facilitator", strconv.Quote(c.Facilitator), "an https URL, or an http URL of this machine")
	}
	wrong.require(c.Ledger != nil, "Ledger", "missing", "one of package ledger/file, or a DynamoDB table")
	wrong.require(c.Budget > 0 && c.Budget <= 12*time.Second, "Budget", c.Budget, "more than 0 and at most 12s")
	if c.OriginOf == nil {
		origins, err := newOrigins(c.Origin, c.OtherOrigins)
		wrong = append(wrong, err)
		c.OriginOf = origins.originOf
	} else {
		alone := c.Origin == "" && len(c.OtherOrigins) == 0
		wrong.require(alone, "Origin", "set beside OriginOf", "empty where that is set")
	}
	wrong.require(c.Concurrent <= limit.MaxCap, "Concurrent", c.Concurrent, fmt.Sprint("at most ", limit.MaxCap))
	wrong.require(c.Decimals > 0 && c.Decimals <= 36, "Decimals", c.Decimals, "from 1 to 36")
	return errors.Join(wrong...)
}

// problems are the errors of wrong settings.
type problems []error

// require adds an error for a setting if ok is false. value is the setting's value, and rule
// says what it must be.
func (p *problems) require(ok bool, setting string, value any, rule string) {
	if !ok {
		*p = append(*p, fmt.Errorf("x402http: %s is %v, and must be %s", setting, value, rule))
	}
}

// fillSettler sets Settler to a client of Facilitator. ok is false if the URL cannot be used.
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
