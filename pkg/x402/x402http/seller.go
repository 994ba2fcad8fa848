package x402http

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// Config says who is paid, by whom payments are settled, and where they are recorded.
// PayTo, Facilitator and Ledger are required; everything else has a default.
type Config struct {
	// PayTo is the account that is paid: 0x and 40 hexadecimal digits, in one letter case or
	// with the checksum of EIP-55. All programs that are paid on it must share Ledger:
	// otherwise each may answer what another was paid for, and Reconcile lists what the
	// others received as refunds that are due.
	PayTo string
	// Facilitator is the https URL of the service that settles; http is for this machine only.
	Facilitator string
	// Credentials are sent to Facilitator; the zero value sends none.
	Credentials facilitator.Credentials
	// Ledger records every payment: file.Open or dynamo.Open, or ledgertest.Memory in
	// tests. A lost record can cost an answer, or a second charge.
	Ledger ledger.Store

	// Network is where payments are made (CAIP-2), Asset the token's contract, and
	// AssetName and AssetVersion its EIP-712 domain. All empty is USDC on Base.
	Network, Asset, AssetName, AssetVersion string
	// Decimals of the asset; 0 is 6, those of USDC.
	Decimals int

	// Origin is the public origin, such as https://shop.example. Empty takes it from each
	// request's Host header, which is right where clients reach this program itself.
	Origin string
	// Name and Description are what offers say is sold.
	Name, Description string
	// Budget is how long a handler may run; 0 means 10 s, and 12 s is the most: the payment
	// is settled in what is left of 27 s.
	Budget time.Duration
	// Window is how long after an answer another payment of the same payer for the same
	// request, without an Idempotency-Key, counts as the same purchase; 0 means 45 s, and
	// a negative value not at all.
	Window time.Duration
	// PerMinute are the units of one client. A request is one unit, and a payment that fails
	// by its payer's fault up to twenty; 0 means 300, and a negative value no limit.
	PerMinute int
	// Concurrent is how many runs of all handlers there are at once; 0 means 50, 100 is the
	// most, and a negative value no limit.
	Concurrent int
	// Limits counts both for several processes; nil counts in this one.
	Limits limit.Store

	// Evidence reads the chain (chain.New); it may be nil. Without it a payment whose
	// settlement cannot be confirmed stays in doubt until its client repeats it, and counts
	// as paid then if the facilitator says that its authorization was used.
	Evidence x402.Evidence
	// Settler takes the place of Facilitator and Credentials: x402.One of another client, or
	// a fallback.Pair, which asks a second facilitator when the first one fails.
	Settler x402.Settler
	// Receipts sign offers and answers; nil is none.
	Receipts x402.Receipts
	// Rate takes the place of PerMinute.
	Rate *limit.Rate

	// Front is what every response has in common.
	Front  Front
	Random io.Reader // nil is crypto/rand
}

// Seller sells handlers and products.
type Seller struct {
	config   Config
	terms    x402.Terms
	ledger   *ledger.Ledger
	cheapest *big.Int // in atomic units; nil before anything is sold
	routes   routes
}

// New returns a Seller. Its error names every setting that is wrong.
func New(c Config) (*Seller, error) {
	c.fill()
	terms := x402.Terms{Network: c.Network, Asset: c.Asset, PayTo: c.PayTo, Name: c.AssetName, Version: c.AssetVersion}
	if err := c.check(terms); err != nil {
		return nil, err
	}
	return &Seller{config: c, terms: terms, ledger: ledger.New(c.Ledger, c.Front.Now, rand.Text)}, nil
}

// Reconcile decides once, by Config.Evidence, what requests left in doubt, and returns
// what it found and what is owed. Run it every few minutes, in one process at a time: it
// finds the payments that no client asks about again. It ends when ctx does. The error
// says that the ledger failed, or that it keeps no index of open payments.
func (s *Seller) Reconcile(ctx context.Context) (reconcile.Summary, error) {
	index, ok := s.config.Ledger.(ledger.Index)
	if !ok {
		return reconcile.Summary{}, fmt.Errorf("x402http: the ledger %T keeps no index of open payments", s.config.Ledger)
	}
	c := reconcile.Reconciler{
		Ledger: s.ledger, Index: index, Evidence: s.config.Evidence, Terms: s.terms, Cheapest: s.cheapest,
		Now: s.config.Front.Now, Log: s.config.Front.Log,
	}
	c.Scanner, _ = s.config.Evidence.(reconcile.Scanner)
	return Reconciler(c).Run(ctx)
}

// Reconciler returns a copy of c that renders errors as requests do. Their request_id is
// "reconcile", and docs_url is left out, because the origin may be known from requests only.
func Reconciler(c reconcile.Reconciler) *reconcile.Reconciler {
	c.Error = func(f *fault.Error, s x402.PaymentStatus) []byte {
		front := Front{}
		front.fill()
		return front.errorBody(nil, "reconcile", f, s, false)
	}
	return &c
}

func (c *Config) fill() {
	if c.Network+c.Asset+c.AssetName+c.AssetVersion == "" {
		usdc := x402.USDC()
		c.Network, c.Asset, c.AssetName, c.AssetVersion = usdc.Network, usdc.Asset, usdc.Name, usdc.Version
	}
	c.Decimals = cmp.Or(c.Decimals, 6)
	c.Budget = cmp.Or(c.Budget, 10*time.Second)
	c.Window = max(cmp.Or(c.Window, 45*time.Second), 0)
	c.PerMinute, c.Concurrent = max(cmp.Or(c.PerMinute, 300), 0), max(cmp.Or(c.Concurrent, 50), 0)
	if c.Limits == nil {
		c.Limits = &limit.Memory{}
	}
	c.Front.fill()
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Rate == nil && c.PerMinute > 0 {
		c.Rate = limit.NewRate(c.PerMinute, c.Limits, c.Front.Now)
	}
}

// check makes the Settler of Facilitator, and returns what is wrong with the settings.
func (c *Config) check(t x402.Terms) error {
	var all []error
	check := func(ok bool, setting string, is any, must string) {
		if !ok {
			all = append(all, fmt.Errorf("x402http: %s is %v, and must be %s", setting, is, must))
		}
	}
	err := x402.CheckAddress(c.PayTo, c.Asset)
	check(err == nil, "PayTo", fmt.Sprintf("%q, which %v", c.PayTo, err), "the address that is paid")
	if c.Settler == nil {
		client, err := facilitator.New(facilitator.Config{URL: c.Facilitator, Credentials: c.Credentials, Now: c.Front.Now})
		u, _ := url.Parse(c.Facilitator)
		u = cmp.Or(u, &url.URL{}) // New has said what is wrong
		host, _ := netip.ParseAddr(u.Hostname())
		local := u.Hostname() == "localhost" || host.IsLoopback()
		check(err == nil && (u.Scheme == "https" || local), "Facilitator", strconv.Quote(c.Facilitator), "an https URL, or an http URL of this machine")
		c.Settler = x402.One(client)
	}
	check(c.Ledger != nil, "Ledger", "missing", "one of package ledger/file, or a DynamoDB table")
	_, err = t.TokenDomain()
	check(err == nil, "Network, Asset, AssetName, AssetVersion", fmt.Sprintf("refused (%v)", err), "those of one token")
	check(c.Budget > 0 && c.Budget <= 12*time.Second, "Budget", c.Budget, "more than 0 and at most 12s")
	u, err := url.Parse(c.Origin)
	origin := err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") && c.Origin == u.Scheme+"://"+u.Host
	check(origin || c.Origin == "", "Origin", strconv.Quote(c.Origin), "an origin such as https://shop.example")
	check(c.Concurrent <= limit.MaxCap, "Concurrent", c.Concurrent, fmt.Sprint("at most ", limit.MaxCap))
	check(c.Decimals > 0 && c.Decimals <= 36, "Decimals", c.Decimals, "from 1 to 36")
	return errors.Join(all...)
}

// atomic is a decimal price, such as "0.01", in the smallest units of an asset.
func atomic(price string, decimals int) (*big.Int, error) {
	whole, part, _ := strings.Cut(price, ".")
	digits := whole + part
	if whole == "" || len(part) > decimals || strings.Trim(digits, "0123456789") != "" || strings.HasSuffix(price, ".") {
		return nil, fmt.Errorf("price %q is not a decimal number with at most %d places", price, decimals)
	}
	n, ok := new(big.Int).SetString(digits+strings.Repeat("0", decimals-len(part)), 10)
	if !ok || n.Sign() == 0 || n.BitLen() > 128 {
		return nil, fmt.Errorf("price %q is not above 0, or too large", price)
	}
	return n, nil
}
