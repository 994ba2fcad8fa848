// Command invoke runs one function of template.yaml on one event, without
// Docker and without AWS: what "make local-invoke FN=dns" does.
//
//	go run ./infra/local/invoke -fn dns [-event events/dns.json]
//
// The function is the built bootstrap behind a Lambda Runtime API, or with -sam run by "sam local invoke", in Docker. Template parameters
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
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/infra/sam"
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
	var r result
	if err == nil {
		r, err = invoke(ctx, o, lookup, stderr)
	}
	if r.again {
		fmt.Fprintln(stderr, "invoke: it costs play money: the event was sent again, signed with a key that was made for it")
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "invoke:", err)
		return exitUsage
	case r.failed:
		fmt.Fprintf(stdout, "%s\n", r.payload)
		fmt.Fprintln(stderr, "invoke: the function returned an error")
		return exitFunction
	}
	show(stdout, r.payload)
	return 0
}

// invoke starts the function and sends it the event, and again with a payment if its
// answer asks for one.
func invoke(ctx context.Context, o options, lookup func(string) (string, bool), notes io.Writer) (r result, err error) {
	event, err := os.ReadFile(o.event)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("there is no event %s; a function %s has its example in %s", o.event, o.slug, filepath.Join("events", o.slug+".json"))
	}
	if err != nil {
		return r, err
	}
	f, err := described(o)
	if err != nil {
		return r, err
	}
	for _, name := range append(slices.Collect(maps.Keys(f.Env)), varEndpoint) {
		if value, ok := lookup(name); ok { // the environment wins over the template
			f.Env[name] = value
		}
	}
	dir := filepath.Join(o.build, o.slug)
	if _, err := os.Stat(filepath.Join(dir, "bootstrap")); err != nil {
		return r, fmt.Errorf("%w (make build)", err)
	}
	call := func(event []byte) (result, error) { return bySAM(ctx, f, dir, event, notes) }
	if !o.sam {
		p, err := start(ctx, f, dir, notes)
		if err != nil {
			return r, err
		}
		defer p.close(notes)
		call = p.call
	}
	r, err = call(event)
	if err != nil || r.failed {
		return r, err
	}
	event, err = signed(event, r.payload, time.Now())
	if err != nil || event == nil {
		return r, err
	}
	r, err = call(event)
	r.again = true
	return r, err
}

// described is the function as the template and samconfig.toml describe it.
func described(o options) (f sam.Function, err error) {
	text, err := os.ReadFile(o.samconfig)
	if err != nil {
		return f, err
	}
	params, err := parameters(string(text))
	if err != nil {
		return f, fmt.Errorf("%s: %w", o.samconfig, err)
	}
	params["Ledger"] = "Ledger" // as sam local does: a resource is called by its logical id
	t, err := sam.Read(o.template)
	if err != nil {
		return f, err
	}
	all, err := t.Functions(params)
	if err != nil {
		return f, fmt.Errorf("%s: %w", o.template, err)
	}
	i := slices.IndexFunc(all, func(f sam.Function) bool { return f.Slug == o.slug })
	if i < 0 {
		return f, fmt.Errorf("%s has no function with the CodeUri functions/%s", o.template, o.slug)
	}
	return all[i], nil
}

// parameters reads parameter_overrides, "Key=Value Key=Value", from the section of
// samconfig.toml that sam local invoke itself reads.
func parameters(samconfig string) (map[string]string, error) {
	params := map[string]string{}
	_, section, _ := strings.Cut(samconfig, "\n[default.local_invoke.parameters]\n")
	section, _, _ = strings.Cut(section, "\n[")
	m := regexp.MustCompile(`(?m)^parameter_overrides\s*=\s*(.*)$`).FindStringSubmatch(section)
	if m == nil {
		return params, nil
	}
	overrides, err := strconv.Unquote(strings.TrimSpace(m[1])) // a basic TOML string is one of Go, but for rare escapes
	if err != nil {
		return nil, errors.New("parameter_overrides must be one quoted string")
	}
	for _, pair := range strings.Fields(overrides) {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%q of parameter_overrides is not Key=Value", pair)
		}
		params[name] = value
	}
	return params, nil
}

// bySAM has the SAM CLI run a function in Lambda's image, out of a template that has
// its settings. Every call is a new container.
func bySAM(ctx context.Context, f sam.Function, dir string, event []byte, logs io.Writer) (result, error) {
	code, err := filepath.Abs(dir)
	if err != nil {
		return result{}, err
	}
	type object map[string]any
	template, err := json.Marshal(object{"Transform": "AWS::Serverless-2016-10-31", "Resources": object{f.Name: object{
		"Type": "AWS::Serverless::Function", "Properties": object{
			"CodeUri": code, "Handler": "bootstrap", "Runtime": "provided.al2023", "Architectures": []string{architecture()},
			"MemorySize": f.Memory, "Timeout": int(f.Timeout.Seconds()), "Environment": object{"Variables": f.Env},
		},
	}}})
	if err != nil {
		return result{}, err
	}
	files := code + ".sam" // beside it, because SAM ships the folder
	if err := errors.Join(os.MkdirAll(files, 0o750), os.WriteFile(filepath.Join(files, "template.json"), template, 0o600),
		os.WriteFile(filepath.Join(files, "event.json"), event, 0o600)); err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, "sam", "local", "invoke", f.Name, "--template", "template.json", "--event", "event.json")
	cmd.Dir, cmd.Stderr = files, logs
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("sam local invoke: %w", err)
	}
	return result{payload: bytes.TrimSpace(out)}, nil
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
