// Command invoke runs one function of template.yaml on one event, without AWS. "make
// local-invoke FN=dns" starts this program.
//
// The program runs the built bootstrap of the function behind a Lambda Runtime API, without
// Docker. With -sam, "sam local invoke" runs the bootstrap in Docker. The values of the
// template's parameters are in [default.local_invoke.parameters] of samconfig.toml. If a
// variable of the function is also set in the environment of this program, the environment
// takes precedence. AWS_ENDPOINT_URL_DYNAMODB is passed on to the function, but no credentials
// are.
//
// If the answer requires a payment, the program signs a payment with a throwaway key, and sends
// the event again with this payment. The function must then take play money. Therefore "make
// local-invoke" builds a folder with two files: "function" is the function, and "bootstrap" is
// this program. If this program is started as a bootstrap (AWS_LAMBDA_RUNTIME_API is set), it
// runs "function" with play money and a ledger in memory.
//
// The answer is printed to standard output; measurements and the function's log to standard
// error. The exit status is 1 when the function fails, and 2 when it could not be run.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/infra/local/runtimeapi"
	"github.com/hostfacts/hostfacts/infra/sam"
)

const (
	exitFunction = 1
	exitUsage    = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		if err := runWithPlayMoney(ctx, os.Getenv); err != nil {
			fmt.Fprintln(os.Stderr, "trial:", err)
			os.Exit(exitFunction)
		}
		return
	}
	code := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the parsed command line.
type options struct {
	slug, event, build string
	sam                bool
}

func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	var o options
	set := flag.NewFlagSet("invoke", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&o.slug, "fn", "", "`function`, such as dns")
	set.StringVar(&o.event, "event", "", "event `file` (default events/<function>.json)")
	set.StringVar(&o.build, "build", "build", "`directory` with <function>/bootstrap")
	set.BoolVar(&o.sam, "sam", false, "run it by sam local invoke, in Docker")
	err := set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err == nil && (o.slug == "" || set.NArg() != 0):
		set.Usage()
		err = errors.New("name one function with -fn")
	}
	o.event = cmp.Or(o.event, filepath.Join("events", o.slug+".json"))
	var payload []byte
	if err == nil {
		payload, err = invoke(ctx, o, lookup, stderr)
	}
	var failed runtimeapi.Failed
	switch {
	case errors.As(err, &failed):
		fmt.Fprintf(stdout, "%s\n", []byte(failed))
		fmt.Fprintln(stderr, "invoke: the function returned an error")
		return exitFunction
	case err != nil:
		fmt.Fprintln(stderr, "invoke:", err)
		return exitUsage
	}
	printAnswer(stdout, payload)
	return 0
}

// invoke starts the function and sends it the event. If the answer requires a payment, invoke
// sends the event again with a payment.
func invoke(ctx context.Context, o options, lookup func(string) (string, bool), notes io.Writer) ([]byte, error) {
	event, err := os.ReadFile(o.event)
	if err != nil {
		return nil, fmt.Errorf("%w (the folder events has an example for each function)", err)
	}
	f, err := readFunction(o.slug)
	if err != nil {
		return nil, err
	}
	for _, name := range append(slices.Collect(maps.Keys(f.Env)), varEndpoint) {
		if value, ok := lookup(name); ok { // the environment takes precedence over the template
			f.Env[name] = value
		}
	}
	dir := filepath.Join(o.build, o.slug)
	if _, err := os.Stat(filepath.Join(dir, "bootstrap")); err != nil {
		return nil, fmt.Errorf("%w (make build)", err)
	}
	said := ""
	defer func() { fmt.Fprint(notes, said) }() // printed after the output of the function
	call := func(event []byte) ([]byte, error) { return runInSAM(ctx, f, dir, event, notes) }
	if !o.sam {
		p, err := runtimeapi.Start(f, dir, &syscall.SysProcAttr{Setpgid: true}, notes) // a new process group, which the function's children join
		if err != nil {
			return nil, err
		}
		defer p.Kill()
		defer context.AfterFunc(ctx, p.Kill)()
		call = func(event []byte) ([]byte, error) {
			payload, err := p.Call(event)
			said += fmt.Sprintf("invoke: init %s, answer %s after start\n", p.Init, time.Since(p.Started))
			return payload, err
		}
	}
	payload, err := call(event)
	if err != nil {
		return nil, err
	}
	event, err = signEvent(event, payload, time.Now())
	if err != nil || event == nil {
		return payload, err
	}
	said += "invoke: this costs play money: the event was sent again, paid with a throwaway key\n"
	return call(event)
}

// readFunction returns a function as template.yaml and samconfig.toml describe it.
func readFunction(slug string) (f sam.Function, err error) {
	text, err := os.ReadFile("samconfig.toml")
	if err != nil {
		return f, err
	}
	t, err := sam.Read("template.yaml")
	if err != nil {
		return f, err
	}
	all, err := t.Functions(parameters(string(text)))
	if err != nil {
		return f, fmt.Errorf("template.yaml, with the parameters of samconfig.toml: %w", err)
	}
	i := slices.IndexFunc(all, func(f sam.Function) bool { return f.Slug == slug })
	if i < 0 {
		return f, fmt.Errorf("template.yaml has no function with the CodeUri functions/%s", slug)
	}
	return all[i], nil
}

// parameters returns the parameter_overrides, "Key=Value Key=Value", from the section of
// samconfig.toml for "sam local invoke". It does not check the names and values:
// Template.Functions does.
func parameters(samconfig string) map[string]string {
	params := map[string]string{"Ledger": "Ledger"} // "sam local" also uses the logical id as the table's name
	_, section, _ := strings.Cut(samconfig, "\n[default.local_invoke.parameters]\n")
	section, _, _ = strings.Cut("\n"+section, "\n[")
	m := regexp.MustCompile(`(?m)^parameter_overrides\s*=\s*"(.*)"$`).FindStringSubmatch(section)
	if m != nil {
		for pair := range strings.FieldsSeq(m[1]) {
			name, value, _ := strings.Cut(pair, "=")
			params[name] = value
		}
	}
	return params
}

// runInSAM runs a function with the SAM CLI in Lambda's image. It writes a template that has
// only this function and its settings. Every call uses a new container.
func runInSAM(ctx context.Context, f sam.Function, dir string, event []byte, logs io.Writer) ([]byte, error) {
	code, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	type object map[string]any
	architecture := runtime.GOARCH
	if architecture == "amd64" {
		architecture = "x86_64"
	}
	template, err := json.Marshal(object{"Transform": "AWS::Serverless-2016-10-31", "Resources": object{f.Name: object{
		"Type": "AWS::Serverless::Function", "Properties": object{
			"CodeUri":       code,
			"Handler":       "bootstrap",
			"Runtime":       "provided.al2023",
			"Architectures": []string{architecture},
			"MemorySize":    f.Memory,
			"Timeout":       int(f.Timeout.Seconds()),
			"Environment":   object{"Variables": f.Env},
		},
	}}})
	if err != nil {
		return nil, err
	}
	files := code + ".sam" // beside the function's folder, because SAM copies everything in that folder
	if err := errors.Join(os.MkdirAll(files, 0o750), os.WriteFile(filepath.Join(files, "template.json"), template, 0o600),
		os.WriteFile(filepath.Join(files, "event.json"), event, 0o600)); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "sam", "local", "invoke", f.Name, "--template", "template.json", "--event", "event.json")
	cmd.Dir = files
	cmd.Stderr = logs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("sam local invoke: %w", err)
	}
	return bytes.TrimSpace(out), nil
}

// varEndpoint is the environment variable that tells the AWS SDK to use a DynamoDB endpoint
// other than that of AWS.
const varEndpoint = "AWS_ENDPOINT_URL_DYNAMODB"

// printAnswer prints an answer in readable form.
func printAnswer(w io.Writer, payload []byte) {
	var resp events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(payload, &resp); err != nil || resp.StatusCode == 0 {
		fmt.Fprintf(w, "%s\n", payload) // not an HTTP answer
		return
	}
	fmt.Fprintln(w, resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Headers)) {
		fmt.Fprintf(w, "%s: %s\n", name, resp.Headers[name])
	}
	text, ok := textOf(resp)
	var pretty bytes.Buffer
	switch {
	case !ok:
		text = fmt.Sprintf("(%d characters of base64)", len(resp.Body))
	case json.Indent(&pretty, []byte(text), "", "  ") == nil:
		text = pretty.String()
	}
	fmt.Fprintf(w, "\n%s\n", strings.TrimRight(text, "\n"))
}

// textOf returns the text of an answer, which may be compressed. It reports whether it could
// read the text.
func textOf(resp events.APIGatewayV2HTTPResponse) (text string, ok bool) {
	if !resp.IsBase64Encoded {
		return resp.Body, true
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(resp.Body)))
	if err != nil {
		return "", false
	}
	const most = 6 << 20 // the limit for an answer of a Lambda function
	raw, err := io.ReadAll(io.LimitReader(z, most))
	return string(raw), err == nil
}
