// Command invoke runs one function of template.yaml on one event, without
// Docker and without AWS: what "make local-invoke FN=dns" does.
//
//	go run ./infra/local/invoke -fn dns [-event events/dns.json]
//
// The function is the built bootstrap, run as Lambda runs it (package
// lambdahost), or with -sam by "sam local invoke", in Docker. Template parameters
// are those of [default.local_invoke.parameters] in samconfig.toml; a variable of
// the function that is set in the environment wins over the template's value, and
// AWS_ENDPOINT_URL_DYNAMODB is passed on. No AWS credentials are passed on.
//
// An event whose answer asks for a payment is sent again with one, signed by a key
// that is made for it. As the bootstrap of a folder with a program "function", this
// program runs that beside play money and a ledger in memory (see trial): "make
// local-invoke" makes such a folder, so that the payment is answered.
//
// The answer goes to standard output, measurements and what the function logs go
// to standard error. The exit status is 1 when the function fails, 2 when it
// could not be run.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

const (
	exitFunction = 1
	exitUsage    = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		os.Exit(trial(ctx, os.Getenv))
	}
	code := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the command line.
type options struct {
	slug, event, template, samconfig, build string
	sam                                     bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	set := flag.NewFlagSet("invoke", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.slug, "fn", "", "`function`, such as dns")
	set.StringVar(&o.event, "event", "", "event `file` (default events/<function>.json)")
	set.StringVar(&o.template, "template", "template.yaml", "SAM template")
	set.StringVar(&o.samconfig, "samconfig", "samconfig.toml", "SAM configuration with the test parameters")
	set.StringVar(&o.build, "build", "build", "`directory` with <function>/bootstrap")
	set.BoolVar(&o.sam, "sam", false, "run it by sam local invoke, in Docker")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if o.slug == "" || set.NArg() != 0 {
		set.Usage()
		return o, errors.New("name one function with -fn")
	}
	if o.event == "" {
		o.event = filepath.Join("events", o.slug+".json")
	}
	return o, nil
}

func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		var result lambdahost.Result
		var again bool
		result, again, err = invoke(ctx, o, lookup, stderr)
		if again {
			fmt.Fprintln(stderr, "invoke: it costs play money: the event was sent again, signed with a key that was made for it")
		}
		var failed *lambdahost.FunctionError
		switch {
		case errors.As(err, &failed):
			fmt.Fprintf(stdout, "%s\n", failed.Payload)
			fmt.Fprintln(stderr, "invoke:", err)
			return exitFunction
		case err == nil:
			show(stdout, result.Payload)
			if !o.sam {
				fmt.Fprintf(stderr, "invoke: init %v, first answer %v after start, event %v\n",
					result.Init.Round(10*time.Microsecond), result.First.Round(10*time.Microsecond), result.Duration.Round(10*time.Microsecond))
			}
			return 0
		}
	}
	fmt.Fprintln(stderr, "invoke:", err)
	return exitUsage
}

// invoke hosts the one function and sends it the event, and again if it costs money.
func invoke(ctx context.Context, o options, lookup func(string) (string, bool), logs io.Writer) (r lambdahost.Result, again bool, err error) {
	event, err := os.ReadFile(o.event)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, fmt.Errorf("there is no event %s; a function %s has its example in %s", o.event, o.slug, filepath.Join("events", o.slug+".json"))
	}
	if err != nil {
		return r, false, err
	}
	params, err := parameters(o.samconfig)
	if err != nil {
		return r, false, err
	}
	params["Ledger"] = "Ledger" // as sam local does: a resource is called by its logical id
	cfg, err := lambdahost.FromTemplate(o.template, o.build, params, nil)
	if err != nil {
		return r, false, err
	}
	i := slices.IndexFunc(cfg.Functions, func(f lambdahost.Function) bool { return filepath.Base(f.Dir) == o.slug })
	if i < 0 {
		return r, false, fmt.Errorf("%s has no function with the CodeUri functions/%s", o.template, o.slug)
	}
	f := cfg.Functions[i]
	fromEnvironment(f.Env, lookup)
	if _, err := os.Stat(filepath.Join(f.Dir, "bootstrap")); err != nil {
		return r, false, fmt.Errorf("%w (make build)", err)
	}
	if o.sam {
		return paid(event, func(event []byte) (lambdahost.Result, error) { return bySAM(ctx, f, event, logs) })
	}
	h, err := lambdahost.New(lambdahost.Config{Functions: []lambdahost.Function{f}, Logs: logs})
	if err != nil {
		return r, false, err
	}
	defer h.Close()
	return paid(event, func(event []byte) (lambdahost.Result, error) {
		r, err := h.Call(ctx, f.Name, event)
		if cold := h.Stats(f.Name).Cold; len(cold) > 0 { // of the first call
			r.Init, r.First = cold[0].Init, cold[0].First
		}
		return r, err
	})
}

// paid sends an event, and sends it again with a payment if its answer asks for one.
func paid(event []byte, call func([]byte) (lambdahost.Result, error)) (r lambdahost.Result, again bool, err error) {
	if r, err = call(event); err != nil {
		return r, false, err
	}
	event, err = signed(event, r.Payload, time.Now())
	if err != nil || event == nil {
		return r, false, err
	}
	r, err = call(event)
	return r, true, err
}

// bySAM has the SAM CLI run a function in Lambda's image, out of a template that has
// its settings. Every call is a new container.
func bySAM(ctx context.Context, f lambdahost.Function, event []byte, logs io.Writer) (lambdahost.Result, error) {
	code, err := filepath.Abs(f.Dir)
	if err != nil {
		return lambdahost.Result{}, err
	}
	type object map[string]any
	template, err := json.Marshal(object{"Transform": "AWS::Serverless-2016-10-31", "Resources": object{f.Name: object{
		"Type": "AWS::Serverless::Function", "Properties": object{
			"CodeUri": code, "Handler": "bootstrap", "Runtime": "provided.al2023", "Architectures": []string{architecture()},
			"MemorySize": f.Memory, "Timeout": int(f.Timeout.Seconds()), "Environment": object{"Variables": f.Env},
		},
	}}})
	if err != nil {
		return lambdahost.Result{}, err
	}
	files := code + ".sam" // beside it, because SAM ships the folder
	if err := errors.Join(os.MkdirAll(files, 0o750), os.WriteFile(filepath.Join(files, "template.json"), template, 0o600),
		os.WriteFile(filepath.Join(files, "event.json"), event, 0o600)); err != nil {
		return lambdahost.Result{}, err
	}
	sam := exec.CommandContext(ctx, "sam", "local", "invoke", f.Name, "--template", "template.json", "--event", "event.json")
	sam.Dir, sam.Stderr = files, logs
	out, err := sam.Output()
	if err != nil {
		return lambdahost.Result{}, fmt.Errorf("sam local invoke: %w", err)
	}
	return lambdahost.Result{Payload: bytes.TrimSpace(out)}, nil
}

// architecture is that of the built function, as SAM calls it.
func architecture() string {
	if runtime.GOARCH == "arm64" {
		return runtime.GOARCH
	}
	return "x86_64"
}

// varEndpoint is the SDK's own variable for a DynamoDB elsewhere.
const varEndpoint = "AWS_ENDPOINT_URL_DYNAMODB"

// fromEnvironment lets the environment win over the template.
func fromEnvironment(env map[string]string, lookup func(string) (string, bool)) {
	for _, name := range append(slices.Collect(maps.Keys(env)), varEndpoint) {
		if value, ok := lookup(name); ok {
			env[name] = value
		}
	}
}

// show prints an answer as a person reads it.
func show(w io.Writer, payload []byte) {
	var resp events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(payload, &resp); err != nil || resp.StatusCode == 0 {
		fmt.Fprintf(w, "%s\n", payload) // not an HTTP answer
		return
	}
	fmt.Fprintln(w, resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Headers)) {
		fmt.Fprintf(w, "%s: %s\n", name, resp.Headers[name])
	}
	for _, cookie := range resp.Cookies {
		fmt.Fprintf(w, "set-cookie: %s\n", cookie)
	}
	fmt.Fprintln(w)
	if text, ok := unzipped(resp); ok {
		resp.Body, resp.IsBase64Encoded = text, false
	}
	switch text, isJSON := indent(resp.Body); {
	case isJSON:
		fmt.Fprintln(w, text)
	case resp.IsBase64Encoded:
		fmt.Fprintf(w, "(%d characters of base64)\n", len(resp.Body))
	case resp.Body != "":
		fmt.Fprintln(w, strings.TrimRight(resp.Body, "\n"))
	}
}

// unzipped is the text of a compressed answer.
func unzipped(resp events.APIGatewayV2HTTPResponse) (string, bool) {
	if !resp.IsBase64Encoded || resp.Headers["content-encoding"] != "gzip" {
		return "", false
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(resp.Body)))
	if err != nil {
		return "", false
	}
	const most = 6 << 20 // of an answer of a function
	text, err := io.ReadAll(io.LimitReader(z, most))
	return string(text), err == nil
}

func indent(body string) (string, bool) {
	if !json.Valid([]byte(body)) {
		return "", false
	}
	out, err := json.MarshalIndent(json.RawMessage(body), "", "  ")
	return string(out), err == nil
}
