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

// Payer signs payments with one key, as Wallet of package x402test does.
type Payer interface {
	Address() x402.Address
	// Pay signs the first entry of an offer, and returns the PAYMENT-SIGNATURE header.
	Pay(required x402.PaymentRequired, now time.Time) (string, error)
}

// World is what is around a seller. World of package x402test makes one.
type World struct {
	// Network is where payments are made (CAIP-2).
	Network string
	// Money moves what is settled, each authorization once.
	Money x402.Facilitator
	// Node answers JSON-RPC about what has moved; nil for none.
	Node http.Handler
	// NewPayer makes the payer of a private key, 32 bytes of hex. It draws nonces from random.
	NewPayer func(key string, random io.Reader) (Payer, error)
}

// Settings are what a seller is started with.
type Settings struct {
	Facilitator string // the URL of the facilitator, for every process of the seller
	Node        string // the URL of a node of the chain
	Upstream    string // a URL that fails when handlers are to fail
	Price       string // what is to be asked, in units of the token; empty where it never changes
	// NewLife returns another URL of the facilitator and a function that ends it: what asks
	// there afterwards hears nothing. It is for sellers that cannot really be killed.
	NewLife func() (facilitator string, end func())
}

// Seller is what is judged. It keeps its records where the next process finds them.
type Seller interface {
	// Start starts the seller, and returns when it takes requests.
	Start(ctx context.Context, s Settings) (Instance, error)
}

// Instance is a seller that runs.
type Instance interface {
	// Origin is where it listens, such as http://127.0.0.1:8080.
	Origin() string
	// Kill ends it at once, in the middle of whatever it does, and returns when it is gone.
	Kill()
}

// Goods are what is bought.
type Goods struct {
	Method      string // GET unless it is set
	Path        string // with the query
	Body        string
	ContentType string // of Body
	// OtherPath and OtherBody ask for something else at the same price. Where both are empty
	// the same path is asked for with another query.
	OtherPath, OtherBody string
	// Tool is a tool over the Model Context Protocol at ToolPath, which is called with Args,
	// a JSON object. OtherArgs ask it for something else.
	Tool, ToolPath, Args, OtherArgs string
}

// Config says what is judged, and how.
type Config struct {
	Seller Seller
	World  World
	Goods  Goods
	// Price is what must be asked, in units of the token; empty for whatever is asked. A
	// seller that can be started with OtherPrice is judged by what a change of price does.
	Price, OtherPrice string
	Promises          []Promise
	// Rows and Ways limit what is played; nil is everything.
	Rows []string
	Ways []Way
	Seed uint64
	// Hold is how long a facilitator that gives no answer keeps its connection open at most,
	// Slow is how long a slow one takes, and Patience is how long a payer asks again.
	Hold, Slow, Patience time.Duration
	// Watch is told what happens, while it happens; nil for nobody. It may be called by
	// several at once.
	Watch func(Event)
	// Outsiders are programs that buy, beside the payers of this package.
	Outsiders []Outsider
}

// Outsider is a program of others that buys in a loop, and signs again for each try.
type Outsider struct {
	Way  Way  // the name of the program
	Tool bool // it calls tools
	// Buy buys until there is an answer, or the program gives up.
	Buy func(ctx context.Context, o Order) (answered bool, err error)
}

// Order is what an Outsider buys.
type Order struct {
	Goods   Goods
	Origin  string // in the place of the seller's: that of the line
	Network string
	Key     string // the private key, 32 bytes of hex
	Tries   int    // the most
}

// Event is something that happened.
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

// check returns what is wrong with a configuration.
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

// ways are those of all payers.
func (c *Config) ways() []Way {
	all := allWays()
	for _, o := range c.Outsiders {
		all = append(all, o.Way)
	}
	return all
}

// outsider is the program that buys in a way; nil where it is no program.
func (c *Config) outsider(w Way) *Outsider {
	for i := range c.Outsiders {
		if c.Outsiders[i].Way == w {
			return &c.Outsiders[i]
		}
	}
	return nil
}

// names are the texts of a list.
func names[T ~string](list []T) []string {
	var all []string
	for _, one := range list {
		all = append(all, string(one))
	}
	return all
}

// court is a run of all rows.
type court struct {
	config Config
	offer  offer // what the seller asks for
	bank   *bank
	base   string // the URL of the bank
}

// Run judges a seller. The error says why it could not be judged.
func Run(ctx context.Context, c Config) (*Report, error) {
	c.fill()
	if err := c.check(); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("judge: listen for the facilitator: %w", err)
	}
	j := &court{config: c, bank: newBank(c.World), base: "http://" + listener.Addr().String()}
	server := newServer(j.bank)
	go func() { _ = server.Serve(listener) }() // it ends with Close
	defer server.Close()
	if err := j.look(ctx); err != nil {
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

// look starts the seller once to read its offer.
func (j *court) look(ctx context.Context) error {
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

// settings are what a process of the seller is started with.
func (j *court) settings(price string) Settings {
	return Settings{
		Facilitator: j.base,
		Node:        j.base + nodePath,
		Upstream:    j.base + upstreamPath,
		Price:       price,
		NewLife:     func() (string, func()) { return j.bank.newLife(j.base) },
	}
}

// promises are those that were declared, and those that the seller's offer makes.
func (j *court) promises() []Promise {
	all := slices.Clone(j.config.Promises)
	if j.offer.hasIdentifier() && !slices.Contains(all, PromiseIdentifier) {
		all = append(all, PromiseIdentifier)
	}
	return all
}

// ways are those in which a row can be played here.
func (j *court) ways(r row) []Way {
	all := slices.Clone(r.ways)
	for _, o := range j.config.Outsiders {
		// They do as those that sign again for each try, and like them have one errand only.
		if slices.Contains(r.ways, New) && r.play == nil {
			all = append(all, o.Way)
		}
	}
	return slices.DeleteFunc(all, func(w Way) bool { return !j.has(w) })
}

// has says whether something can be bought in a way, and is to be.
func (j *court) has(w Way) bool {
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
