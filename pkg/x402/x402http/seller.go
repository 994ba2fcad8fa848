package x402http

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Config says who is paid, by whom payments are settled, and where they are recorded.
// PayTo, Facilitator and Ledger are required; everything else has a default.
type Config struct {
	// PayTo is the account that is paid: 0x and 40 hexadecimal digits.
	PayTo string
	// Facilitator is the https URL of who settles; http is for this machine only.
	Facilitator string
	// Credentials are sent to Facilitator; nil is none.
	Credentials facilitator.Credentials
	// Ledger records every payment: file.Open or dynamo.Open, or ledgertest.Memory in
	// tests. A record that is lost is an answer that is lost, or a second charge.
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
	// Budget is how long a handler may run; 0 is 10 s, and 12 s is the most: the payment
	// is settled in what is left of 27 s.
	Budget time.Duration
	// Window is for how long after an answer another payment of the same payer for the
	// same request, without an Idempotency-Key, counts as the same purchase; 0 is 45 s,
	// and less than 0 none.
	Window time.Duration
	// PerMinute are the units of one client, of which a request is one and a payment that
	// fails by its payer's fault up to twenty; 0 is 300, and less than 0 no limit.
	PerMinute int
	// Concurrent is how many handlers run at once; 0 is 50, 100 is the most, and less
	// than 0 no limit.
	Concurrent int
	// Limits counts both for several processes; nil counts in this one.
	Limits interface {
		limit.Counter
		limit.Leases
	}

	// Evidence reads the chain (chain.New); nil is none. Without it a payment whose
	// settlement cannot be confirmed stays in doubt until its client repeats it, and the
	// word of the facilitator that an authorization was used counts as paid.
	Evidence x402.Evidence
	// Settler takes the place of Facilitator and Credentials.
	Settler x402.Facilitator
	// Fallback is asked when the facilitator fails (x402.NewFallback), and Receipts sign
	// offers and answers. Each is nil without one.
	Fallback *x402.Fallback
	Receipts x402.Receipts
	// Rate takes the place of PerMinute.
	Rate *limit.Rate

	// Front is what every response has in common.
	Front
	Random io.Reader // nil is crypto/rand
}

// Seller sells handlers and products.
type Seller struct {
	config   Config
	terms    x402.Terms
	ledger   *ledger.Ledger
	slots    x402.Slots
	cheapest *big.Int // in atomic units; nil before anything is sold
}

// New returns a Seller. Its error names every setting that is wrong.
func New(c Config) (*Seller, error) {
	c.fill()
	err := c.check()
	if c.Settler == nil && c.Facilitator != "" {
		client, failed := facilitator.New(facilitator.Config{URL: c.Facilitator, Credentials: c.Credentials, Now: c.Now})
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("x402http: Facilitator: %w", failed))
		}
		c.Settler = client
	}
	if err != nil {
		return nil, err
	}
	s := &Seller{config: c, ledger: ledger.New(c.Ledger, c.Now, rand.Text)}
	s.terms = x402.Terms{Network: c.Network, Asset: c.Asset, PayTo: c.PayTo, Name: c.AssetName, Version: c.AssetVersion}
	if c.Concurrent > 0 {
		s.slots = Slots("x402http", c.Concurrent, c.Limits, c.Now)
	}
	return s, nil
}

// Reconcile decides once, by Config.Evidence, what requests left in doubt, and returns
// what it found and what is owed. Run it every few minutes, in one process at a time: it
// finds the payments that no client asks about again. It ends when ctx does. The error
// says that the ledger failed, or that it keeps no index of open payments.
func (s *Seller) Reconcile(ctx context.Context) (x402.Summary, error) {
	index, ok := s.config.Ledger.(ledger.Index)
	if !ok {
		return x402.Summary{}, fmt.Errorf("x402http: the ledger %T keeps no index of open payments", s.config.Ledger)
	}
	c := x402.ReconcilerConfig{
		Ledger: s.ledger, Index: index, Evidence: s.config.Evidence, Network: s.terms.Network, Cheapest: s.cheapest, Now: s.config.Now, Log: s.config.Log,
		Error: func(f *fault.Error, st x402.PaymentStatus) []byte { return ErrorBody("reconcile", "", f, st) },
	}
	c.Scanner, _ = s.config.Evidence.(x402.Scanner)
	var err, failed error
	c.Asset, err = x402.ParseAddress(s.terms.Asset)
	c.Payee, failed = x402.ParseAddress(s.terms.PayTo)
	if err := errors.Join(err, failed); err != nil {
		return x402.Summary{}, err
	}
	return x402.NewReconciler(c).Run(ctx)
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
		c.Rate = limit.NewRate(limit.RateConfig{PerMinute: c.PerMinute, Counter: c.Limits, Now: c.Now})
	}
}

// mostBudget leaves time to settle, and to ask what came of it.
const mostBudget = 12 * time.Second

func (c *Config) check() error {
	var all []error
	wrong := func(setting, format string, args ...any) {
		all = append(all, fmt.Errorf("x402http: "+setting+" "+format, args...))
	}
	if a, err := x402.ParseAddress(c.PayTo); err != nil || a == (x402.Address{}) {
		wrong("PayTo", "is %q, and must be the address that is paid, 0x and 40 hexadecimal digits", c.PayTo)
	}
	if c.Settler == nil {
		u, err := url.Parse(c.Facilitator)
		if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !local(u.Hostname())) {
			wrong("Facilitator", "is %q, and must be an https URL, or an http URL of this machine", c.Facilitator)
		}
	}
	if c.Ledger == nil {
		wrong("Ledger", "is missing: open one with package ledger/file, or a DynamoDB table")
	}
	if _, err := (x402.Terms{Network: c.Network, Asset: c.Asset, PayTo: c.PayTo, Name: c.AssetName, Version: c.AssetVersion}).TokenDomain(); err != nil {
		wrong("Network, Asset, AssetName, AssetVersion", "go together: %v", err)
	}
	if c.Budget < 0 || c.Budget > mostBudget {
		wrong("Budget", "is %s, and must be more than 0 and at most %s", c.Budget, mostBudget)
	}
	if u, err := url.Parse(c.Origin); c.Origin != "" && (err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http") {
		wrong("Origin", "is %q, and must be an origin such as https://shop.example", c.Origin)
	}
	if c.Concurrent > limit.MaxCap {
		wrong("Concurrent", "is %d, and must be at most %d", c.Concurrent, limit.MaxCap)
	}
	if c.Decimals < 0 || c.Decimals > 36 {
		wrong("Decimals", "is %d, and must be from 1 to 36", c.Decimals)
	}
	return errors.Join(all...)
}

func local(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

// Slots cap the jobs of an operation, over all processes that share leases.
func Slots(operation string, most int, leases limit.Leases, now func() time.Time) x402.Slots {
	return gateSlots{limit.NewSlots(limit.SlotsConfig{Operation: operation, Cap: most, Leases: leases, Now: now, NewID: leaseID})}
}

// leaseID is 30 random bits: it stands in an item with all others, and every write is
// paid by its size.
func leaseID() string {
	b := make([]byte, 4)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)[:limit.IDLength]
}

// atomic is a decimal price, such as "0.01", in the smallest units of an asset.
func atomic(price string, decimals int) (string, error) {
	whole, part, _ := strings.Cut(price, ".")
	digits := whole + part
	if whole == "" || len(part) > decimals || strings.Trim(digits, "0123456789") != "" || strings.HasSuffix(price, ".") {
		return "", fmt.Errorf("price %q is no decimal number with at most %d places", price, decimals)
	}
	n, ok := new(big.Int).SetString(digits+strings.Repeat("0", decimals-len(part)), 10)
	if !ok || n.Sign() == 0 || n.BitLen() > 128 {
		return "", fmt.Errorf("price %q is not above 0, or too large", price)
	}
	return n.String(), nil
}
