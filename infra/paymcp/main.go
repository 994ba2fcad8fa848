// Command pay-mcp is an MCP server over stdio, in front of a paid MCP server, for a host that
// knows nothing of x402. pay-mcp offers the tools of the paid server and pays for the calls,
// within a limit for each call and a budget for any 24 hours. "make pay-mcp" runs it:
//
//	pay-mcp URL           started by a host: serve; on a terminal: print what to paste into hosts
//	pay-mcp config URL    print what to paste into hosts
//	pay-mcp allow URL     on a terminal: allow real money for URL, and set the limits
//	pay-mcp status URL    what was spent, and what has no answer
//	pay-mcp forget URL ID say that a purchase was not charged, so that it may be paid again
//
// A server on this machine is paid with a throwaway key, which holds no money; "make run"
// accepts it as play money. Any other server is paid only after pay-mcp allow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

const version = "1.0.0"

const usage = `usage: pay-mcp URL              for hosts: serve the tools of the paid MCP server at URL
                                on a terminal: print what to paste into hosts
       pay-mcp config URL       print what to paste into hosts
       pay-mcp allow URL        on a terminal: allow real money for URL, and set the limits
       pay-mcp status URL       show what was spent in 24 hours, and what has no answer
       pay-mcp forget URL ID    say that a purchase was not charged, so that it may be paid again
       -dir FOLDER before them  keep all files in this folder
       -wait 50s before them    how long a call may take; choose less than the host's timeout
With make: make pay-mcp URL=http://127.0.0.1:8402/mcp [DO=allow]`

// program is one run of the command.
type program struct {
	in              io.ReadCloser
	terminal        bool // whether the input is a terminal
	out             io.WriteCloser
	notes           io.Writer
	now             func() time.Time
	after           func(time.Duration) <-chan time.Time
	transport       http.RoundTripper
	executable      string        // the path of this executable
	folder          string        // the folder of all files of this program
	isDefaultFolder bool          // folder is the default folder
	callTimeout     time.Duration // the time limit for one call
}

func main() {
	if version, asked := called.Version(os.Args); asked {
		fmt.Println(version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	p := &program{
		in:        os.Stdin,
		out:       os.Stdout,
		notes:     os.Stderr,
		now:       time.Now,
		after:     time.After,
		terminal:  term.IsTerminal(int(os.Stdin.Fd())),
		transport: newTransport(),
	}
	err := p.parseAndRun(ctx, os.Args[1:])
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	case err != nil && ctx.Err() == nil:
		fmt.Fprintln(os.Stderr, "pay-mcp:", err)
		os.Exit(1)
	}
}

// shortestWait is the shortest time limit for a call that -wait accepts.
const shortestWait = time.Second

// errUsage marks an invalid command line.
var errUsage = errors.New("usage")

// newTransport returns the transport for requests to servers.
func newTransport() http.RoundTripper {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

func (p *program) parseAndRun(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("pay-mcp", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&p.folder, "dir", "", "")
	flags.DurationVar(&p.callTimeout, "wait", buyer.CallTime, "")
	if err := flags.Parse(args); err != nil || p.callTimeout < shortestWait {
		return errUsage
	}
	words := flags.Args()
	command := "serve"
	if len(words) > 0 && slices.Contains([]string{"serve", "config", "allow", "status", "forget"}, words[0]) {
		command = words[0]
		words = words[1:]
	} else if p.terminal {
		command = "config"
	}
	if len(words) == 0 || len(words) > 2 || (len(words) == 2) != (command == "forget") {
		return errUsage
	}
	at, err := parseTarget(words[0])
	if err != nil {
		return err
	}
	if err := p.findPaths(); err != nil {
		return err
	}
	return p.run(ctx, command, at, words[len(words)-1])
}

// findPaths determines the paths of this executable and of its folder.
func (p *program) findPaths() (err error) {
	if p.executable == "" {
		if p.executable, err = os.Executable(); err != nil {
			return fmt.Errorf("where is this program: %w", err)
		}
		p.executable = filepath.Clean(p.executable)
	}
	if p.folder != "" {
		p.folder, err = filepath.Abs(p.folder)
		return err
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return fmt.Errorf("find the folder for settings: %w; name one with -dir", err)
	}
	p.folder = filepath.Join(config, "hostfacts", "pay-mcp")
	p.isDefaultFolder = true
	return nil
}

func (p *program) run(ctx context.Context, command string, at *url.URL, last string) error {
	kept, err := purse.Open(filepath.Join(p.folder, folderFor(at)), p.now, p.after)
	if err != nil {
		return err
	}
	till := &till{program: p, serverURL: at, purse: kept, upstream: newUpstream(at.String(), p.transport)}
	switch command {
	case "config":
		return till.printConfig(ctx)
	case "allow":
		return till.allow(ctx)
	case "status":
		return till.printStatus()
	case "forget":
		return till.forget(ctx, last)
	}
	return till.serve(ctx)
}

// till has the program together with the paid server that it buys from.
type till struct {
	*program
	serverURL *url.URL
	purse     *purse.Purse
	upstream  *upstream
}

// serve answers the requests of a host.
func (t *till) serve(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(t.notes, &slog.HandlerOptions{ReplaceAttr: untrusted.Attr}))
	if err := t.purse.Sweep(ctx); err != nil {
		log.Warn("old purchases cannot be removed", "error", err)
	}
	b := &buyer.Buyer{
		Server:      t.serverURL.String(),
		Upstream:    t.upstream,
		Purse:       t.purse,
		Terms:       t.terms,
		Wallet:      t.wallet,
		Chain:       t.nodeOf,
		Receipt:     t.checkReceipt,
		Now:         t.now,
		After:       t.after,
		Wait:        t.callTimeout,
		HowToAllow:  t.commandLine("allow"),
		HowToForget: func(id string) string { return t.commandLine("forget", id) },
	}
	proxy := newProxy(&proxy{
		upstream: t.upstream,
		buyer:    b,
		terms:    t.terms,
		log:      log,
		now:      t.now,
	})
	log.Info("ready", "server", t.serverURL.String(), "kept in", t.folder)
	return proxy.serve(ctx, t.in, t.out)
}

// commandLine returns a command line of this program, for a shell.
func (t *till) commandLine(command string, more ...string) string {
	return shellLine(slices.Concat([]string{t.executable}, t.flags(), []string{command, t.serverURL.String()}, more))
}

// flags returns the flags that a printed command needs to use the same folder and time limit.
func (t *till) flags() []string {
	var set []string
	if !t.isDefaultFolder {
		set = append(set, "-dir", t.folder)
	}
	if t.callTimeout != buyer.CallTime {
		set = append(set, "-wait", t.callTimeout.String())
	}
	return set
}

// printConfig prints what a person must paste into hosts.
func (t *till) printConfig(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	said, tools, err := t.upstream.tools(limited)
	name := nameFor("", t.serverURL)
	switch {
	case err != nil:
		fmt.Fprintf(t.notes, "The server does not answer now: %s\n", err)
	case said != nil:
		name = nameFor(said.Name, t.serverURL)
	}
	terms, err := t.terms()
	if err != nil {
		fmt.Fprintf(t.notes, "It will not pay yet: %s.\n", err)
	} else {
		kind := "real money"
		if terms.IsPlayMoney {
			kind = "play money"
		}
		fmt.Fprintf(t.notes, "%d tools at %s, paid by %s: at most %s per call and %s in any 24 hours.\n", len(tools), t.serverURL, kind, terms.Amount(terms.PerCall), terms.Amount(terms.PerDay))
	}
	fmt.Fprintln(t.out, "Paste the one for your host, which then starts the program by itself.")
	printHosts(t.out, launchSettings{
		name:    name,
		command: t.executable,
		args:    slices.Concat(t.flags(), []string{t.serverURL.String()}),
	})
	return nil
}

// parseTarget parses the URL of a server and normalizes it.
func parseTarget(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err == nil {
		u.Host = strings.ToLower(u.Host)
		u.Fragment = ""
	}
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("%s is not the URL of an MCP server; one looks like https://api.example.com/mcp", untrusted.Quote(s, untrusted.Max))
	case u.User != nil:
		return nil, errors.New("the URL has a user name or a password in it, which every host would show")
	case u.Scheme != "https" && !bill.IsLoopback(u):
		return nil, errors.New("a server on another machine must use https: over http, anybody on the path could name another payee")
	}
	return u, nil
}
