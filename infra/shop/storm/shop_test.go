package storm_test

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

const (
	payTo  = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"
	price  = "0.01"
	budget = 3 * time.Second // how long a run of a handler may take

	forecastTool = "forecast"
	reportTool   = "report"

	// The part of a city's name before the dash says how the handler behaves for that city.
	steadyCity = "steady"
	flakyCity  = "flaky" // the first run for a payment fails
	slowCity   = "slow"  // the first run exceeds its time limit

	endedOnPurpose = 7 // the exit code of a process that a handler ends
)

// settings are the settings of one process of the shop. The process gets them as JSON in an
// environment variable. It gets its listening socket as file 3, which stays open when the
// process is killed.
type settings struct {
	Ledger      string
	Facilitator string
	Node        string        // a URL; empty means no node
	Window      time.Duration // how long an answer is returned to repeated requests; 0 means the default
	Skew        time.Duration // how far the clock of the process is ahead of the machine's clock
	Faults      bool          // whether its handlers fail at random
	Die         float64       // the share of the handlers' runs that end the process
}

const (
	settingsVar = "STORM_SHOP"
	socketFile  = 3
)

// shop is the tested program.
type shop struct {
	settings
	seller *x402http.Seller
	store  *file.Store
	router *chi.Mux
}

func newShop(s settings, now func() time.Time, log *slog.Logger) (*shop, error) {
	store, err := file.Open(s.Ledger)
	if err != nil {
		return nil, err
	}
	config := x402http.Config{
		PayTo: payTo, Facilitator: s.Facilitator, Ledger: store, Origin: "http://shop.example", Name: "Weather",
		Budget: budget, Window: s.Window, PerMinute: -1, NoNode: s.Node == "",
		Now: now, Log: log,
	}
	if s.Node != "" {
		usdc := x402.USDC()
		config.Evidence, err = chain.New(chain.Config{URLs: []string{s.Node}, Network: usdc.Network, Asset: usdc.Asset, Now: now})
		if err != nil {
			return nil, err
		}
	}
	seller, err := x402http.New(config)
	if err != nil {
		return nil, err
	}
	shop := &shop{settings: s, seller: seller, store: store, router: chi.NewRouter()}
	shop.routes()
	return shop, nil
}

// routes registers the two handlers that are sold. The ledger identifies the forecast by the
// pattern of its route, and the report by its name.
func (s *shop) routes() {
	city := x402http.Param{Name: "city", Description: "Name of the city.", Required: true}
	days := x402http.Param{Name: "days", Description: "How many days.", Required: true, Type: "integer"}
	forecast := s.seller.Sell(price, http.HandlerFunc(s.forecast))
	report := s.seller.Sell(price, http.HandlerFunc(s.report), x402http.Post(1<<10), x402http.Named("report"))
	s.router.Method(http.MethodGet, "/forecast/{city}", forecast)
	s.router.Method(http.MethodPost, "/report", report)
	s.router.Method(http.MethodPost, "/mcp", s.seller.MCP("weather", "1.0", s.router,
		x402http.Tool{Endpoint: forecast, Path: "/forecast/{city}", Name: forecastTool, Params: []x402http.Param{city}},
		x402http.Tool{Endpoint: report, Path: "/report", Name: reportTool, Params: []x402http.Param{city, days}}))
	s.router.Post("/reconcile", func(w http.ResponseWriter, r *http.Request) {
		_, err := s.seller.Reconcile(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// answer is the answer of both handlers.
type answer struct {
	City        string `json:"city"`
	Payer       string `json:"payer"`
	Transaction string `json:"transaction"`
	Run         string `json:"run"` // a random text, different in each run
}

// forecast reads its parameter before and after its work. If the router reused the request in
// between, forecast would answer for the city of another request.
func (s *shop) forecast(w http.ResponseWriter, r *http.Request) {
	if s.work(w, r, chi.URLParam(r, "city")) {
		s.write(w, r, chi.URLParam(r, "city"))
	}
}

func (s *shop) report(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		City string `json:"city"`
		Days int    `json:"days"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Days != days {
		http.Error(w, "the body is not what was bought", http.StatusInternalServerError)
		return
	}
	if s.work(w, r, asked.City) {
		s.write(w, r, asked.City)
	}
}

// work does the work of a handler and reports whether there is an answer. It may panic or end
// the process.
func (s *shop) work(w http.ResponseWriter, r *http.Request, city string) bool {
	if s.failAtRandom(w, r) {
		return false
	}
	sale, _ := x402.SaleOf(r.Context())
	kind, _, _ := strings.Cut(city, "-")
	switch {
	case kind == flakyCity && !sale.Repeat:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not yet", http.StatusServiceUnavailable)
		return false
	case kind == slowCity && !sale.Repeat:
		time.Sleep(budget + randomUpTo(3*time.Second)) // a slow handler does not check its context
	default:
		time.Sleep(randomUpTo(200 * time.Millisecond))
	}
	return true
}

// failAtRandom makes the handler fail at random, in one of several ways. It reports whether
// the handler has failed.
func (s *shop) failAtRandom(w http.ResponseWriter, r *http.Request) bool {
	if !s.Faults {
		return false
	}
	drawn := mathrand.Float64()
	switch {
	case drawn < s.Die:
		os.Exit(endedOnPurpose)
	case drawn < 0.13:
		http.Error(w, "down", http.StatusServiceUnavailable)
	case drawn < 0.16:
		panic("a fault of the handler")
	case drawn < 0.19:
		<-r.Context().Done()
	default:
		return false
	}
	return true
}

func (*shop) write(w http.ResponseWriter, r *http.Request, city string) {
	sale, _ := x402.SaleOf(r.Context())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer{City: city, Payer: sale.Payer, Transaction: sale.Transaction, Run: rand.Text()}) // w is a buffer in memory, so writing to it does not fail
}

func randomUpTo(d time.Duration) time.Duration { return time.Duration(mathrand.Int64N(int64(d))) }

// runShop is the main function of a process of the shop. The process ends when the test that
// started it ends, because the test holds the other end of the process's standard input.
func runShop(raw string) error {
	var s settings
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(endedOnPurpose)
	}()
	socket, err := net.FileListener(os.NewFile(socketFile, "socket"))
	if err != nil {
		return err
	}
	now := func() time.Time { return time.Now().Add(s.Skew) }
	shop, err := newShop(s, now, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: shop.router, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	return server.Serve(socket)
}
