// Command local runs the whole service on this machine: the same handlers as in the functions,
// real lookups, a ledger in one file and a play-money facilitator.
//
// These are the defaults. Every variable of a deployment can also be set here, in the
// environment. If FACILITATOR_URL is set, or NETWORK is a test network, the play-money
// facilitator does not start. If LEDGER_TABLE is set, the ledger is in DynamoDB. With -version,
// the program prints its version.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func main() {
	if version, asked := called.Version(os.Args); asked {
		fmt.Println(version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// While 256 clients pay at once, the runner uses some 170 MB. The limit is well above that:
	// near the limit, the garbage collector would take most of the processor time.
	boot.RelaxCollector(256 << 20)
	announced := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(announced)
		stop() // the next signal ends the process
		fmt.Fprintln(os.Stderr, "Finishing open requests. Press Ctrl-C again to stop now.")
	})
	if err := run(ctx, os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-announced // run returns without an error only after a signal: wait until the message above is printed
	fmt.Fprintln(os.Stderr, "Stopped.")
}

// errPlayInAWS is returned when play money is combined with a table in AWS. The ledger of a
// deployment would treat payments with play money like real ones.
var errPlayInAWS = errors.New("LEDGER_TABLE is a table in AWS, and without FACILITATOR_URL this service takes play money: " +
	"set FACILITATOR_URL, unset LEDGER_TABLE to use a ledger file, or set AWS_ENDPOINT_URL_DYNAMODB to use a local DynamoDB")

// errTestPayee is returned if real money would be paid to the test address, whose private key
// is public.
var errTestPayee = errors.New("FACILITATOR_URL moves real money, but PAY_TO is not set: set it to the address that receives the money, PAY_TO=0x... " +
	"(NETWORK=" + x402.BaseSepolia + " is a test network, whose money is worth nothing)")

// run runs the service until the context is done.
func run(ctx context.Context, getenv func(string) string, out io.Writer) error {
	config, err := boot.ParseLocal(getenv)
	if err != nil {
		return err
	}
	if config.Ledger.InAWS() && config.FacilitatorURL == "" && !config.Paused {
		return errPlayInAWS
	}
	if config.GivesAway() {
		return errTestPayee
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", config.Addr)
	var wrong *net.AddrError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("LOCAL_ADDR=%s is not an address to listen on: use a host and a port from 1 to 65535, such as %s (%s)", config.Addr, boot.LocalAddr, wrong.Err)
	case err != nil:
		return fmt.Errorf("listen on %s: %w. Is Hostfacts running already? LOCAL_ADDR sets another port", config.Addr, err)
	}
	defer listener.Close()
	if !config.OriginGiven {
		config.BaseURL = "http://" + clientAddr(listener.Addr(), config.Addr)
	}
	stores, ledgerName, closeStore, err := openLedger(ctx, config)
	if err != nil {
		return err
	}
	defer closeStore()
	wallet, closePlay, err := startPlayMoney(ctx, &config, listener.Addr())
	if err != nil {
		return err
	}
	defer closePlay()
	key, err := receiptKey(filepath.Dir(config.LedgerFile))
	if err != nil {
		return err
	}
	config.SignReceipts(key)
	components, err := config.Components(stores, newLog(out, config.LogLevel), time.Now)
	if err != nil {
		return err
	}
	handler, err := operations.Handler(components)
	if err != nil {
		return err
	}
	if wallet != nil {
		if handler, err = wallet.addToService(handler, config.BaseURL); err != nil {
			return err
		}
	}
	printWelcome(out, config, ledgerName)
	ctx, cancel := context.WithCancel(ctx)
	probed := make(chan struct{})
	go func() { defer close(probed); warnUnresolved(ctx, out, components.Resolver.Diagnose) }()
	defer func() { cancel(); <-probed }()
	return serve(ctx, listener, onlyFromHere(listener.Addr(), config.BaseURL, handler))
}

// serve runs an HTTP server until the context is done. It then lets open requests finish.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	const grace = 30 * time.Second // somewhat longer than the 27 s that a handler may take
	server := newServer(h)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return server.Shutdown(ctx)
}

// newServer returns a server with timeouts. A handler may take 27 s, as on Lambda. The size
// limit for headers is above that of API Gateway. A request whose payment header is too long
// is therefore answered by this service and not by net/http.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		MaxHeaderBytes:    256 << 10,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      45 * time.Second,
		IdleTimeout:       15 * time.Second,
	}
}

// openLedger opens the DynamoDB table if one is configured, else the ledger file.
func openLedger(ctx context.Context, c boot.Local) (stores boot.Stores, name string, done func(), err error) {
	if c.Ledger.Name == "" {
		s, err := file.Open(c.LedgerFile, file.Accept(c.LedgerAccept))
		if errors.Is(err, file.ErrUnreadable) || errors.Is(err, file.ErrIncomplete) || errors.Is(err, file.ErrBeside) {
			return stores, "", nil, err // the error says what to do
		}
		if err == nil {
			_, err = s.Sweep(ctx, time.Now())
		}
		if err != nil {
			return stores, "", nil, fmt.Errorf("%w (LEDGER_FILE names another file)", err)
		}
		return boot.Stores{Ledger: s, Limits: &limit.Memory{}}, c.LedgerFile, func() { logCloseError("ledger", s.Close()) }, nil
	}
	if at := c.Ledger.AWS.BaseEndpoint; at != nil {
		// A local DynamoDB server starts without the table, so the table is created here. In a
		// deployment, template.yaml creates it.
		if err := dynamo.Create(ctx, dynamo.NewClient(c.Ledger.AWS), c.Ledger.Name); err != nil {
			return stores, "", nil, fmt.Errorf("create table %s at %s: %w", c.Ledger.Name, *at, err)
		}
	}
	return c.Ledger.Stores(), "DynamoDB table " + c.Ledger.Name, func() {}, nil
}

// startPlayMoney starts the play-money facilitator on the port after the service's, with a
// wallet for visitors who have none. If another facilitator is configured, or the service is
// paused, startPlayMoney starts nothing and returns a nil wallet.
func startPlayMoney(ctx context.Context, c *boot.Local, service net.Addr) (wallet *playWallet, done func(), err error) {
	if c.FacilitatorURL != "" || c.Paused {
		return nil, func() {}, nil
	}
	journal := ""
	if c.Ledger.Name == "" {
		journal = filepath.Join(filepath.Dir(c.LedgerFile), "play-money.jsonl")
	}
	addr, err := nextPort(clientAddr(service, c.Addr), c.Addr)
	if err != nil {
		return nil, nil, err
	}
	if wallet, err = newPlayWallet(c.Terms, time.Now); err != nil {
		return nil, nil, err
	}
	f, err := x402test.NewFacilitator(x402test.FacilitatorConfig{
		Terms:   c.Terms,
		Now:     time.Now,
		Journal: journal,
	})
	switch {
	case errors.Is(err, x402test.ErrJournalInUse):
		return nil, nil, fmt.Errorf("%w. Is Hostfacts running already with this ledger? Stop it first. "+
			"Or start this one with another ledger, such as LEDGER_FILE=.local/second/ledger.db, "+
			"or share the ledger: set FACILITATOR_URL to the facilitator that the other one prints", err)
	case err != nil:
		return nil, nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		logCloseError("play-money journal", f.Close())
		return nil, nil, fmt.Errorf("start the play-money facilitator on the port after the service's: %w\n"+
			"LOCAL_ADDR moves both, such as LOCAL_ADDR=127.0.0.1:9402; FACILITATOR_URL names another facilitator", err)
	}
	c.FacilitatorURL = "http://" + l.Addr().String()
	c.PlayMoney = true
	c.PlayWallet = wallet.script()
	server := newServer(f)
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "play-money facilitator:", err)
		}
	}()
	return wallet, func() { server.Close(); logCloseError("play-money journal", f.Close()) }, nil
}

// newLog returns a logger for people. Lines of the level INFO do not show their level. Metrics
// for CloudWatch, whose names begin with a capital letter or an underscore, are left out.
func newLog(out io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case a.Key == slog.TimeKey:
			return slog.String(a.Key, a.Value.Time().Format("15:04:05.000"))
		case a.Key < "a", a.Key == slog.LevelKey && a.Value.Any() == slog.LevelInfo:
			return slog.Attr{}
		}
		return untrusted.Attr(groups, a)
	}}))
}

func logCloseError(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "close the %s: %v\n", what, err)
	}
}

// clientAddr returns the address that clients on this machine use. It also needs the configured
// address, because a listener reports the same address for ":8402" as for "[::]:8402".
func clientAddr(listening net.Addr, configured string) string {
	_, port, err := net.SplitHostPort(listening.String())
	host, _, _ := net.SplitHostPort(configured)
	if meant := net.JoinHostPort(host, port); err == nil && boot.Reachable(meant) != meant {
		return boot.Reachable(meant)
	}
	return listening.String()
}

// nextPort returns the service's address with the next port. If the configured port is 0,
// which means any free port, the returned port is 0.
func nextPort(service, configured string) (string, error) {
	addr, err := netip.ParseAddrPort(service)
	_, asked, _ := net.SplitHostPort(configured)
	switch next := addr.Port() + 1; {
	case err != nil:
		return "", err
	case asked == "0":
		return netip.AddrPortFrom(addr.Addr(), 0).String(), nil
	case next == 0:
		return "", errors.New("LOCAL_ADDR has the last port, 65535, and the play-money facilitator needs the next one: " +
			"set a lower port, or set FACILITATOR_URL to another facilitator")
	default:
		return netip.AddrPortFrom(addr.Addr(), next).String(), nil
	}
}

func printWelcome(out io.Writer, c boot.Local, ledgerName string) {
	network := x402.Network(c.Terms.Network)
	payee := c.Terms.PayTo
	money := ""
	wallet := "KEY_FILE=<a file with a private key> "
	open := "Open in a browser with a wallet"
	switch {
	case c.PlayMoney:
		money = " (play money)"
		wallet = ""
		open = "Open in a browser, and press Pay with play money"
	case network.Test:
		money = " (test money of " + network.Name + ", which " + network.Faucet + " gives away)"
	}
	if !c.PayeeGiven {
		payee += " (a published test address; set PAY_TO to use yours)"
	}
	dns := catalog.DNS()
	fmt.Fprintf(out, `%s is ready on %s

  ledger       %s
  network      %s
  facilitator  %s
  resolvers    %v
  payee        %s

%s:
  %s

See the price without paying:
  curl -i '%s'

Pay for an answer%s, in another terminal:
  make pay %sURL='%s'

Give an agent the tools (Model Context Protocol):
  %s%s

Read the documentation:
  %s/docs

Ctrl-C stops it.

`, catalog.Service, c.BaseURL, ledgerName, cmp.Or(network.Name, c.Terms.Network), cmp.Or(c.FacilitatorURL, "none: SELLING is no"), c.Resolvers, payee,
		open, dns.ExampleURL(c.BaseURL), dns.ExampleURL(c.BaseURL), money, wallet, dns.ExampleURL(c.BaseURL), c.BaseURL, catalog.PathMCP, c.BaseURL)
}
