package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Payer signs payments with one key, like Wallet of package x402test.
type Payer interface {
	Address() x402.Address
	// Pay signs a payment for the first entry of an offer, and returns the PAYMENT-SIGNATURE
	// header.
	Pay(required x402.PaymentRequired, now time.Time) (string, error)
}

// World holds the surroundings of a seller: play money, a node and payers. The function World
// of package x402test makes one.
type World struct {
	// Network is the network of the payments, as a CAIP-2 identifier.
	Network string
	// Money settles payments, each authorization once.
	Money x402.Facilitator
	// Node answers JSON-RPC about all transfers; nil means that there is no node.
	Node http.Handler
	// NewPayer returns the payer with the given private key, 32 bytes in hexadecimal. The
	// payer takes its nonces from the given source of random bytes.
	NewPayer func(key string, random io.Reader) (Payer, error)
}

// Settings are the settings with which a seller is started.
type Settings struct {
	Facilitator string // the URL of the facilitator, for every process of the seller
	Node        string // the URL of a node of the chain
	Upstream    string // the URL of a service that the seller's handlers may call; it fails in some rows
	Price       string // the price that the seller must ask for, in units of the token; empty if the price never changes
	// NewLife returns another URL of the facilitator, and a function that shuts this URL down.
	// Later requests to the URL get no answer. NewLife is for sellers that cannot really be
	// killed.
	NewLife func() (facilitator string, end func())
}

// Seller starts the seller that is tested. All processes of the seller must use the same
// records.
type Seller interface {
	// Start starts a process of the seller, and returns when the process takes requests.
	Start(ctx context.Context, s Settings) (Instance, error)
}

// Instance is one running process of a seller.
type Instance interface {
	// Origin returns the URL where the process listens, such as http://127.0.0.1:8080.
	Origin() string
	// Kill ends the process at once, whatever it is doing, and returns when it has ended.
	Kill()
}

// Goods describe what the payers buy.
type Goods struct {
	Method      string // the HTTP method of the request; GET if empty
	Path        string // the path of the request, including the query
	Body        string
	ContentType string // the media type of Body
	// OtherPath and OtherBody are a request for something else at the same price. If both are
	// empty, that request has the same path with another query.
	OtherPath, OtherBody string
	// Tool is the name of a tool over the Model Context Protocol at ToolPath. It is called with
	// Args, a JSON object. OtherArgs are the arguments of a call for something else.
	Tool, ToolPath, Args, OtherArgs string
}

// Config says which seller is tested, and how.
type Config struct {
	Seller Seller
	World  World
	Goods  Goods
	// Price is the price that the seller must ask for, in units of the token; if it is empty,
	// any price is accepted. If OtherPrice is set, a change to that price is also tested.
	Price, OtherPrice string
	Promises          []Promise
	// Rows and Ways name the rows and ways that are played; nil means all.
	Rows []string
	Ways []Way
	Seed uint64
	// Hold is the longest time for which a facilitator that does not answer keeps a connection
	// open. Slow is the time that a slow facilitator takes. Patience is the time for which a
	// payer keeps asking.
	Hold, Slow, Patience time.Duration
	// Watch is called with each event as soon as it happens; nil means that nobody watches. It
	// may be called from several goroutines at once.
	Watch func(Event)
	// Outsiders are external programs that buy in addition to the payers of this package.
	Outsiders []Outsider
}

// Outsider is an external program that asks again until it has the answer, and signs a new
// payment for each request.
type Outsider struct {
	Way  Way  // the program's name, which the report lists among the ways
	Tool bool // whether it calls tools
	// Buy runs the program until it has the answer or gives up.
	Buy func(ctx context.Context, o Order) (answered bool, err error)
}

// Order tells an Outsider what to buy, and how.
type Order struct {
	Goods   Goods
	Origin  string // where the program sends its requests: a proxy before the seller, which can lose replies
	Network string
	Key     string // the payer's private key, 32 bytes in hexadecimal
	Tries   int    // the largest number of requests that the program may send
}

// Event describes something that happened to one payer.
type Event struct {
	Row  string
	Way  Way
	Text string
}

func (c *Config) fill() {
	c.Goods.Method = cmp.Or(c.Goods.Method, http.MethodGet)
	c.Hold = cmp.Or(c.Hold, 20*time.Second)
	c.Slow = cmp.Or(c.Slow, 5*time.Second)
	c.Patience = cmp.Or(c.Patience, 90*time.Second)
	if c.Watch == nil {
		c.Watch = func(Event) {}
	}
}

// check returns an error if the configuration is invalid.
func (c *Config) check() error {
	if c.Goods.Path == "" && c.Goods.Tool == "" {
		return errors.New("judge: there is nothing to buy: set the path or the tool")
	}
	for _, name := range c.Rows {
		if !slices.Contains(RowNames(), name) {
			return fmt.Errorf("judge: there is no row %q; there are: %s", name, strings.Join(RowNames(), " "))
		}
	}
	for _, p := range c.Promises {
		if !slices.Contains(allPromises(), p) {
			return fmt.Errorf("judge: there is no promise %q; there are: %s", p, strings.Join(names(allPromises()), " "))
		}
	}
	for _, way := range c.Ways {
		if !slices.Contains(c.ways(), way) {
			return fmt.Errorf("judge: there is no way %q; there are: %s", way, strings.Join(names(c.ways()), " "))
		}
	}
	return nil
}

// ways returns the ways of all payers, including those of Outsiders.
func (c *Config) ways() []Way {
	all := allWays()
	for _, o := range c.Outsiders {
		all = append(all, o.Way)
	}
	return all
}

// outsider returns the external program that has the given way, or nil if payers of this
// package buy in that way.
func (c *Config) outsider(w Way) *Outsider {
	for i := range c.Outsiders {
		if c.Outsiders[i].Way == w {
			return &c.Outsiders[i]
		}
	}
	return nil
}

// names converts a list to strings.
func names[T ~string](list []T) []string {
	var all []string
	for _, one := range list {
		all = append(all, string(one))
	}
	return all
}

// court holds the state of one call of Run.
type court struct {
	config  Config
	offer   offer // the seller's offer, read before the first row
	bank    *bank
	bankURL string // the URL of the bank
}

// Run tests a seller and returns the report. It returns an error if the seller could not be
// tested.
func Run(ctx context.Context, c Config) (*Report, error) {
	c.fill()
	if err := c.check(); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("judge: listen for the facilitator: %w", err)
	}
	j := &court{config: c, bank: newBank(c.World), bankURL: "http://" + listener.Addr().String()}
	server := newServer(j.bank)
	go func() { _ = server.Serve(listener) }() // Serve returns after Close
	defer server.Close()
	if err := j.readOffer(ctx); err != nil {
		return nil, err
	}
	report := &Report{Seed: c.Seed, Price: j.offer.price(), Promises: j.promises()}
	for _, r := range allRows() {
		if c.Rows != nil && !slices.Contains(c.Rows, r.name) {
			continue
		}
		result, err := j.play(ctx, r)
		if err != nil {
			return report, fmt.Errorf("judge: row %s: %w", r.name, err)
		}
		report.Rows = append(report.Rows, result)
	}
	return report, nil
}

// readOffer starts the seller once, to read its offer.
func (j *court) readOffer(ctx context.Context) error {
	instance, err := j.config.Seller.Start(ctx, j.settings(j.config.Price))
	if err != nil {
		return fmt.Errorf("judge: start the seller: %w", err)
	}
	defer instance.Kill()
	way := New
	if j.config.Goods.Path == "" {
		way = NewTool
	}
	buyer := &client{http: newClient(j.config.Patience), goods: j.config.Goods, way: way, origin: instance.Origin()}
	r, err := buyer.send(ctx, attempt{})
	if err != nil {
		return fmt.Errorf("judge: ask for the price: %w", err)
	}
	if j.offer, err = r.offer(j.config.World.Network); err != nil {
		return fmt.Errorf("judge: without a payment the seller must ask for one: %w", err)
	}
	if asked := j.offer.price(); j.config.Price != "" && !samePrice(asked, j.config.Price) {
		return fmt.Errorf("judge: the seller asks for %s, and not for %s", asked, j.config.Price)
	}
	return nil
}

// settings returns the settings for a process of the seller.
func (j *court) settings(price string) Settings {
	return Settings{
		Facilitator: j.bankURL,
		Node:        j.bankURL + nodePath,
		Upstream:    j.bankURL + upstreamPath,
		Price:       price,
		NewLife:     func() (string, func()) { return j.bank.newLife(j.bankURL) },
	}
}

// promises returns the promises in the configuration. It adds PromiseIdentifier if the
// seller's offer declares payment-identifier, because that declaration makes the promise.
func (j *court) promises() []Promise {
	all := slices.Clone(j.config.Promises)
	if j.offer.hasIdentifier() && !slices.Contains(all, PromiseIdentifier) {
		all = append(all, PromiseIdentifier)
	}
	return all
}

// ways returns the ways in which a row can be played with this seller.
func (j *court) ways(r row) []Way {
	all := slices.Clone(r.ways)
	for _, o := range j.config.Outsiders {
		// An Outsider buys like a payer whose way is New: it asks until it has the answer. It
		// can do nothing else, so it takes no part in rows that have a play function.
		if slices.Contains(r.ways, New) && r.play == nil {
			all = append(all, o.Way)
		}
	}
	return slices.DeleteFunc(all, func(w Way) bool { return !j.canBuy(w) })
}

// canBuy reports whether the seller can be asked in the given way, and whether the
// configuration includes this way.
func (j *court) canBuy(w Way) bool {
	outsider := j.config.outsider(w)
	switch {
	case j.config.Ways != nil && !slices.Contains(j.config.Ways, w):
		return false
	case w.isTool(), outsider != nil && outsider.Tool:
		return j.config.Goods.Tool != ""
	case w == Identifier && !j.offer.hasIdentifier():
		return false
	}
	return j.config.Goods.Path != ""
}
