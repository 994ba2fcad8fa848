// Judge tests how a seller behaves when paid requests go wrong. The seller is any program that
// sells over x402 version 2, with the scheme exact and EIP-3009 authorizations. Judge starts
// and kills the seller, and simulates everything around it: the facilitator, a chain node, the
// network, and the payers. No money is real, and nothing leaves this machine.
//
//	make judge SELLER='FACILITATOR_URL={facilitator} node server.js' URL=http://127.0.0.1:4021/weather PRICE=0.01
//
// or, without a clone,
//
//	go run github.com/hostfacts/hostfacts/infra/judge@latest -url http://127.0.0.1:4021/weather 'node server.js'
//
// Judge exits with 1 if the seller broke a promise, and with 2 if Judge could not test the
// seller.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/infra/judge/launch"
	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

func main() {
	if version, asked := called.Version(os.Args); asked {
		fmt.Println(version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal ends the process
	status := run(ctx, os.Args, called.Here(os.Getenv, os.Args[0]), os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// The exit statuses of the command.
const (
	exitHeld = iota
	exitBroken
	exitNotJudged
)

// stringList is a flag that can be given several times.
type stringList []string

// String implements flag.Value.
func (l *stringList) String() string { return strings.Join(*l, " ") }

// Set implements flag.Value.
func (l *stringList) Set(one string) error {
	*l = append(*l, one)
	return nil
}

// options are the values of the command line's flags and arguments. For their meaning, see the
// descriptions in parse.
type options struct {
	seller string // the command that starts the seller
	goods  judge.Goods

	url      string
	otherURL string
	toolURL  string

	price      string
	otherPrice string
	network    string
	promises   string

	rows     string
	ways     string
	seed     uint64
	hold     time.Duration
	slow     time.Duration
	patience time.Duration

	dir   string
	env   stringList
	files stringList
	log   string
	ready time.Duration

	clients string
	python  string

	format  string
	verbose bool
}

const usageOfMake = "usage: make judge SELLER='command' URL=http://127.0.0.1:port/path [PRICE=0.01] [PROMISES=same,new,key]" +
	" [ROW=name] [V=1] [FORMAT=markdown]; make help OF=judge shows all"

const usage = `usage: %[1]s [flags] -url URL 'command that starts the seller'
       %[1]s -version
`

const example = `
Example: the weather for a cent, sold by a program that reads FACILITATOR_URL.
  make judge SELLER='FACILITATOR_URL={facilitator} node server.js' URL=http://127.0.0.1:4021/weather PRICE=0.01

In SELLER, {facilitator} stands for the URL of the facilitator, {node} for the URL of a chain node,
{upstream} for the URL of a server that the seller may depend on, and {price} for the price. Without
{facilitator} in the command, the seller finds the URL in FACILITATOR_URL. PROMISES=same,new,key
lists what the seller promises: a purchase is charged once and answered when the same payment is
sent again, when the payer soon signs again, or when an Idempotency-Key names it. payment-identifier
is read from the offer. ROW=name V=1 plays one row and shows each step. The rows are:
%s
`

// parse reads the command line.
func parse(args []string, as called.As, notes io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("judge", flag.ContinueOnError)
	flags.SetOutput(notes)
	flags.StringVar(&o.url, "url", "", "what is sold: an http URL of this machine")
	flags.StringVar(&o.price, "price", "", "its price in units of the token; default: the price that the seller asks")
	flags.StringVar(&o.otherPrice, "other-price", "", "another price that the seller can be started with, by {price}")
	flags.StringVar(&o.otherURL, "other", "", "something else at the same price; default: -url with another query")
	flags.StringVar(&o.goods.Method, "method", "", "the method; default: GET, or POST with -body")
	flags.StringVar(&o.goods.Body, "body", "", "a body to send")
	flags.StringVar(&o.goods.OtherBody, "other-body", "", "a body that asks for something else at the same price")
	flags.StringVar(&o.goods.ContentType, "type", "", "the media type of -body; default: application/json")
	flags.StringVar(&o.toolURL, "tool-url", "", "where tools are sold over the Model Context Protocol (streamable HTTP)")
	flags.StringVar(&o.goods.Tool, "tool", "", "the tool to call there")
	flags.StringVar(&o.goods.Args, "args", "", "its arguments, a JSON object")
	flags.StringVar(&o.goods.OtherArgs, "other-args", "", "arguments that ask for something else")
	flags.StringVar(&o.promises, "promises", "", "what the seller promises: same, new, key; separated by commas")
	flags.StringVar(&o.rows, "row", "", "play these rows only, separated by commas")
	flags.StringVar(&o.ways, "way", "", "play these ways only: same, new, key, identifier, tool, new-tool")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the wallets; the same seed gives the same report")
	flags.StringVar(&o.format, "format", "text", "text, markdown or json")
	flags.BoolVar(&o.verbose, "v", false, "show each step of each row")
	flags.StringVar(&o.network, "network", x402.Base, "where payments are made")
	flags.Var(&o.env, "env", "environment variable of the seller, NAME=value; the value can have {facilitator}, {node}, {upstream} and {price}; can be repeated")
	flags.Var(&o.files, "file", "TEMPLATE=TARGET: write the file TARGET, which the seller reads, from the file TEMPLATE, which can have the same words in braces as -env; can be repeated")
	flags.StringVar(&o.clients, "clients", "", "also buy with unmodified third-party clients, run by the programs in this folder (infra/clients)")
	flags.StringVar(&o.python, "python", "python3", "the Python that has the clients of -clients")
	flags.StringVar(&o.dir, "dir", "", "start the seller in this folder")
	flags.StringVar(&o.log, "log", "", "write what the seller prints to this file")
	flags.DurationVar(&o.ready, "ready", time.Minute, "how long the seller may take to start")
	flags.DurationVar(&o.hold, "hold", 20*time.Second, "how long a facilitator that does not answer holds its connection")
	flags.DurationVar(&o.slow, "slow", 5*time.Second, "how long a slow facilitator takes")
	flags.DurationVar(&o.patience, "patience", 90*time.Second, "how long a payer keeps retrying")
	flags.Usage = func() {
		if as.ByMake() {
			fmt.Fprintln(notes, usageOfMake)
		} else {
			fmt.Fprintf(notes, usage, as.Program(""))
			flags.PrintDefaults()
		}
		fmt.Fprintf(notes, example, strings.Join(judge.RowNames(), " "))
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.seller = strings.Join(flags.Args(), " ")
	if o.seller == "" || o.url == "" && o.toolURL == "" {
		flags.Usage()
		return o, flag.ErrHelp
	}
	return o, nil
}

// run judges a seller as the command line says, and returns the exit status.
func run(ctx context.Context, args []string, as called.As, out, notes io.Writer) (status int) {
	o, err := parse(args[1:], as, notes)
	if err != nil {
		return exitNotJudged
	}
	c, closeLog, err := o.config(ctx, notes)
	if err != nil {
		fmt.Fprintln(notes, err)
		return exitNotJudged
	}
	defer closeLog()
	report, err := judge.Run(ctx, c)
	if report != nil {
		err = errors.Join(err, o.write(out, report))
	}
	if err != nil {
		fmt.Fprintln(notes, err)
		return exitNotJudged
	}
	broken := report.Broken()
	if o.format == "text" {
		fmt.Fprintln(out, rowHint(args, as, report))
	}
	if len(broken) > 0 {
		return exitBroken
	}
	return exitHeld
}

func (o options) write(out io.Writer, report *judge.Report) error {
	switch o.format {
	case "json":
		return report.WriteJSON(out)
	case "markdown":
		return report.WriteMarkdown(out)
	}
	if o.verbose {
		if err := report.WriteSteps(out); err != nil {
			return err
		}
	}
	return report.WriteText(out)
}

// rowHint returns a line that tells the user how to see one row step by step.
func rowHint(args []string, as called.As, report *judge.Report) string {
	row := firstWrong(report)
	if as.ByMake() {
		return "To see one row step by step, run the same command with ROW=" + row + " V=1"
	}
	return "To see one row step by step: " + as.Program("") + " -row " + row + " -v " + quoteArgs(args[1:])
}

// firstWrong returns the first row with a case whose verdict is not Held. If there is no such
// row, it returns the row "reply-lost".
func firstWrong(report *judge.Report) string {
	for _, r := range report.Rows {
		for _, c := range r.Cases {
			if c.Verdict != judge.Held {
				return r.Row
			}
		}
	}
	return "reply-lost"
}

// quoteArgs quotes a command line for a shell.
func quoteArgs(args []string) string {
	var all []string
	for _, one := range args {
		if strings.ContainsAny(one, " \t\n\"'`$&|;<>(){}*?[]#~!\\") {
			one = "'" + strings.ReplaceAll(one, "'", `'\''`) + "'"
		}
		all = append(all, one)
	}
	return strings.Join(all, " ")
}

// config returns the judge's configuration for the options. Call closeLog after the run.
func (o options) config(ctx context.Context, notes io.Writer) (c judge.Config, closeLog func(), err error) {
	closeLog = func() {}
	if o.format != "text" && o.format != "markdown" && o.format != "json" {
		return c, closeLog, fmt.Errorf("-format is %q, and must be text, markdown or json", o.format)
	}
	p := &launch.Program{
		Command: o.seller,
		Env:     o.env,
		Files:   o.files,
		Dir:     o.dir,
		Within:  o.ready,
	}
	c = judge.Config{
		Seller:   p,
		Goods:    o.goods,
		Price:    o.price,
		Seed:     o.seed,
		Hold:     o.hold,
		Slow:     o.slow,
		Patience: o.patience,
		Rows:     splitList(o.rows),
		Watch:    progress(notes),
	}
	for _, one := range splitList(o.promises) {
		c.Promises = append(c.Promises, judge.Promise(one))
	}
	for _, one := range splitList(o.ways) {
		c.Ways = append(c.Ways, judge.Way(one))
	}
	if err := o.setURLs(p, &c.Goods); err != nil {
		return c, closeLog, err
	}
	settings := o.seller + strings.Join(o.env, " ") + strings.Join(o.files, " ")
	if !strings.Contains(settings, "{facilitator}") && len(o.files) == 0 {
		p.Env = append(p.Env, "FACILITATOR_URL={facilitator}")
	}
	if strings.Contains(settings, "{price}") {
		c.OtherPrice = o.otherPrice
	}
	c.World, err = x402test.World(o.network)
	if err != nil {
		return c, closeLog, err
	}
	if o.clients != "" {
		c.Outsiders, err = installedClients(ctx, o.clients, o.python, notes)
		if err != nil {
			return c, closeLog, err
		}
	}
	if o.log != "" {
		file, err := os.Create(o.log)
		if err != nil {
			return c, closeLog, err
		}
		p.Log = file
		closeLog = func() { file.Close() }
	}
	return c, closeLog, nil
}

// setURLs parses the URLs in the options, which must have the same origin. It sets p.Origin,
// p.Ready, and the paths in goods.
func (o options) setURLs(p *launch.Program, goods *judge.Goods) error {
	origins := map[string]bool{}
	for _, one := range []struct {
		url  string
		path *string
	}{
		{o.url, &goods.Path},
		{o.otherURL, &goods.OtherPath},
		{o.toolURL, &goods.ToolPath},
	} {
		if one.url == "" {
			continue
		}
		origin, path, err := splitURL(one.url)
		if err != nil {
			return err
		}
		origins[origin] = true
		p.Origin = origin
		*one.path = path
	}
	if len(origins) != 1 {
		return errors.New("the URLs are not of one origin")
	}
	if goods.Body != "" {
		goods.Method = cmp.Or(goods.Method, http.MethodPost)
		goods.ContentType = cmp.Or(goods.ContentType, "application/json")
	}
	method := cmp.Or(goods.Method, http.MethodGet)
	url := p.Origin + cmp.Or(goods.Path, goods.ToolPath)
	ready, err := http.NewRequest(method, url, strings.NewReader(goods.Body)) //nolint:noctx // each use clones it with a context
	if err != nil {
		return err
	}
	if goods.ContentType != "" {
		ready.Header.Set("Content-Type", goods.ContentType)
	}
	p.Ready = ready
	return nil
}

// splitURL splits a URL into its origin and its path with the query.
func splitURL(raw string) (origin, path string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "", "", errors.Join(fmt.Errorf("%q is not a URL such as http://127.0.0.1:4021/weather", raw), err)
	}
	if u.Scheme != "http" {
		return "", "", fmt.Errorf("%q must be an http URL of this machine", raw)
	}
	return u.Scheme + "://" + u.Host, cmp.Or(u.EscapedPath(), "/") + query(u), nil
}

func query(u *url.URL) string {
	if u.RawQuery == "" {
		return ""
	}
	return "?" + u.RawQuery
}

// splitList returns the items of a list that is separated by commas or spaces.
func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// progress returns a function that prints each row's name when the row begins.
func progress(notes io.Writer) func(judge.Event) {
	var mu sync.Mutex
	last := ""
	return func(e judge.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Row != last {
			last = e.Row
			fmt.Fprintln(notes, "playing", e.Row, "...")
		}
	}
}
