package simnet

import (
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// row is a paid request and the answer that it must get.
type row struct {
	name   string // if it is empty, the query serves as the name
	op     string // slug of the operation
	domain string
	params string // further query parameters, encoded
	want   wantedAnswer
}

// wantedAnswer is an expected answer: an error with a code, or the status 200 if code is empty.
// The body must contain all of the texts.
type wantedAnswer struct {
	code  fault.Code
	texts []string
}

func wantResult(texts ...string) wantedAnswer { return wantedAnswer{texts: texts} }

// wantError returns an expected answer that is an error with a code. The error's message begins
// with the given text, if any.
func wantError(code fault.Code, message ...string) wantedAnswer {
	return wantedAnswer{code, []string{fmt.Sprintf(`"code":"%s","message":"%s`, code, strings.Join(message, ""))}}
}

// childError returns the text that a bundle's answer must contain if a child has failed.
func childError(name string, code fault.Code) string {
	return fmt.Sprintf(`"%s":{"error":{"code":"%s"`, name, code)
}

// rowMaker returns a function that makes a row for an operation. That function takes a name
// (see domainName), the expected answer, and further parameters of the query.
func rowMaker(op string) func(name string, w wantedAnswer, more ...string) row {
	return func(name string, w wantedAnswer, more ...string) row {
		return row{op: op, domain: domainName(name), want: w, params: strings.Join(more, "&")}
	}
}

// rowsFor returns rows of an operation for several names, which must all get the same answer.
func rowsFor(op string, w wantedAnswer, names ...string) []row {
	var rows []row
	for _, name := range names {
		rows = append(rows, rowMaker(op)(name, w))
	}
	return rows
}

// domainName returns the domain name for a name in a table. A name without any kind of dot is
// below example.com.
func domainName(name string) string {
	if strings.ContainsAny(name, ".\u3002\uff0e\uff61") {
		return name
	}
	return name + ".example.com"
}

func (r row) String() string {
	if r.name != "" {
		return r.op + ": " + r.name
	}
	return r.op + ": " + r.domain + " " + r.params
}

func (r row) query() string {
	return strings.TrimSuffix("?domain="+url.QueryEscape(r.domain)+"&"+r.params, "&")
}

// charges reports whether the expected answer costs money.
func (r row) charges() bool {
	info, failed := catalog.CodeOf(r.want.code)
	return !failed || info.Class == fault.Answer || info.Class == fault.Owed
}

// faults returns what is wrong with an answer.
func (r row) faults(reply x402test.Reply) (faults []string) {
	status := http.StatusOK
	if info, failed := catalog.CodeOf(r.want.code); failed {
		status = info.Status
	}
	if reply.Status != status {
		faults = append(faults, fmt.Sprintf("status %d, want %d %s", reply.Status, status, r.want.code))
	}
	for _, text := range r.want.texts {
		if !strings.Contains(string(reply.Body), text) {
			faults = append(faults, "no "+text)
		}
	}
	return faults
}

// timeLimitAnswer matches the answers that the service may give if a call that it made has
// exceeded a time limit.
var timeLimitAnswer = regexp.MustCompile(`"charged":null|"code":"(\w+_timeout|ledger_unavailable)"`)

// observations collects what the answers have shown so far.
type observations struct {
	facts sync.Map         // has each noted fact as a key, such as "dns answered nxdomain"
	api   *clients.OpenAPI // the description to which every answer must conform
}

func (o *observations) note(parts ...any) { o.facts.Store(fmt.Sprint(parts...), true) }

var memberPattern = regexp.MustCompile(`"([a-z0-9_-]+)":(null|"[a-z]+")?`)

// play pays for a row, and checks the answer against the row and the OpenAPI description. If
// the answer may be wrong only because the machine was busy, play pays again.
func (o *observations) play(t *testing.T, s *runner, r row) {
	testbed.Fairly(t, patience, func(tb testing.TB, p *testbed.Pace) { o.playOnce(tb, p, s, r) })
}

func (o *observations) playOnce(t testing.TB, p *testbed.Pace, s *runner, r row) {
	op, known := catalog.BySlug(r.op)
	if !known {
		t.Fatalf("there is no operation %s", r.op)
	}
	reply, err := s.buy(t, op.Path+r.query())
	// On a busy machine, the client may write the request later than the service allows for a
	// new connection. The client then gets an error that package net/http does not export, so
	// this code looks for the error's text.
	if err != nil && strings.Contains(err.Error(), "server closed idle connection") || timeLimitAnswer.Match(reply.Body) && len(r.faults(reply)) > 0 {
		p.Took(patience)
		<-time.After(reply.RetryAfter())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := o.api.Check(http.MethodGet, op.Path, reply); err != nil {
		t.Error(err)
	}
	receipt, err := reply.Receipt()
	if r.charges() != (err == nil && receipt.Success) {
		t.Errorf("receipt %+v (%v) on %d %s", receipt, err, reply.Status, r.want.code)
	}
	if faults := r.faults(reply); len(faults) > 0 {
		t.Errorf("%s: %.2000s", strings.Join(faults, "\n"), reply.Body)
		return
	}
	o.note(op.Slug, " answered ", r.want.code)
	for _, m := range memberPattern.FindAllStringSubmatch(string(reply.Body), -1) {
		o.note(op.Slug, ".", m[1], " null: ", m[2] == "null")
		o.note(m[0])
	}
}

func bundleRows() []row {
	uptime, intel := rowMaker("uptime-check"), rowMaker("host-intel")
	const resolved, named, registered = `"records":[{"address":"`, `"hostname_match":true`, `"handle":"1234_DOMAIN_COM-VRSN"`
	return []row{
		uptime("example.com", wantResult(`"verdict":"up"`, resolved, named, `"status":200`)),
		uptime("expired", wantResult(`"verdict":"degraded"`, `"expired":true`, `"status":200`)),
		uptime("http500", wantResult(`"verdict":"degraded"`, `"status":500`)),
		uptime("gone", wantResult(`"verdict":"down"`, childError("dns", lookup.NXDomain), childError("ssl", lookup.NXDomain), childError("headers", lookup.NXDomain))),
		uptime("silent", wantResult(`"verdict":"down"`, childError("dns", lookup.DNSTimeout), childError("ssl", lookup.SSLTimeout), childError("headers", lookup.HeadersTimeout))),
		uptime("unrouted", wantResult(`"verdict":"down"`, `"ttl":null`, childError("ssl", lookup.ConnectFailed), childError("headers", lookup.ConnectFailed))),
		uptime("loopback", wantResult(`"verdict":"down"`, resolved+`127.0.0.1"`, childError("ssl", lookup.BlockedAddress), childError("headers", lookup.BlockedAddress))),
		intel("example.com", wantResult(`"type":"A"`, `"serial":"0a1b2c"`, registered)),
		intel("example.com", wantResult(`"type":"MX"`, `"preference":10`, named, `"dnssec":true`), "dns_type=MX"),
		intel("missing.com", wantResult(childError("dns", lookup.NXDomain), childError("ssl", lookup.NXDomain), childError("whois", lookup.NotFound))),
		intel("silent", wantResult(childError("dns", lookup.DNSTimeout), childError("ssl", lookup.SSLTimeout), registered)),
		intel("example.com", wantError(lookup.InvalidType), "dns_type=ANY"),
	}
}

const patience = 60 * time.Second

// runner is a running service: the local runner with play money, or the built functions.
type runner struct {
	url          string
	namespace    farNamespace // the network namespace in which the service runs
	log          *programs.Output
	process      *programs.Process
	requestSlots chan struct{} // its capacity limits the concurrent requests; nil means no limit
}

// startRunner starts the local runner with the settings of production, except for limits,
// files and ports.
func startRunner(t *testing.T, n *internet, env ...string) *runner {
	dir := t.TempDir()
	cmd := exec.Command(testbed.Program(t, testbed.LocalRunner))
	cmd.Dir = dir
	cmd.Env = append([]string{
		"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + filepath.Join(dir, "ledger.db"), "SSL_CERT_FILE=" + n.ca.File,
		"RDAP_BOOTSTRAP_URL=" + bootstrapURL, "RATE_LIMIT_PER_MINUTE=0", "CONCURRENCY_SINGLE=0", "CONCURRENCY_BUNDLE=0",
	}, env...)
	p := testbed.Must(programs.StartWith(cmd, programs.Options{Begin: n.namespace.start}))
	r := &runner{namespace: n.namespace, log: &p.Log, process: p}
	t.Cleanup(func() {
		p.End(t)
		r.checkLog(t)
	})
	testbed.Check(p.Ready())
	r.url = p.URL
	return r
}

// checkLog fails the test if the service's log shows a crash.
func (r *runner) checkLog(t *testing.T) {
	if crash := programs.Crash(r.log.String()); crash != "" {
		t.Errorf("the log says %s", crash)
	}
}

// client returns a client with a new wallet, in the network namespace of the service.
func (r *runner) client(t testing.TB) *x402test.Client {
	transport := &http.Transport{DialContext: r.namespace.dial, DisableKeepAlives: true, DisableCompression: true}
	return testbed.NewClient(t, &http.Client{Timeout: patience, Transport: transport})
}

func (r *runner) document(t testing.TB, path string) []byte {
	return testbed.Must(r.client(t).Get(t.Context(), r.url+path, "")).Body
}

func (r *runner) buy(t testing.TB, path string) (x402test.Reply, error) {
	if r.requestSlots != nil {
		r.requestSlots <- struct{}{}
		defer func() { <-r.requestSlots }()
	}
	reply, _, err := r.client(t).Buy(t.Context(), r.url+path)
	return reply, err
}

// maxResident is the limit of design §12 for the memory of an instance after 1,000 paid
// requests, in KiB. The runner must keep to this limit even though it also contains the
// ledger's file and the play-money facilitator. maxPeak is the limit at any moment, even while
// each of 48 hostile peers sends as much as the service accepts.
const maxResident, maxPeak = 64 << 10, 128 << 10

// deploy starts the built functions as the template deploys them, but without limits and
// without a node of the chain. The test fails if an invocation fails or does not end by
// itself.
func deploy(t *testing.T, n *internet) *runner {
	r := &runner{log: new(programs.Output), requestSlots: make(chan struct{}, 12)} // at most 12 requests at once, because each has a process
	db := cloud.StartDynamo(t)
	t.Cleanup(func() { r.checkLog(t) }) // cleanups run in reverse order, so the deployment is closed before this check
	r.url = cloud.Deployment{
		Functions: testbed.Functions(t), Sound: true,
		Parameters: map[string]string{
			"Ledger": db.Table(t), "FacilitatorUrl": testbed.StartFacilitator(t).URL, "RpcUrl": "none", "RdapBootstrapUrl": bootstrapURL,
			"RateLimitPerMinute": "0", "ConcurrencySingle": "0", "ConcurrencyBundle": "0",
		},
		Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": db.URL, "SSL_CERT_FILE": n.ca.File},
		Logs:        r.log,
	}.Open(t).URL
	return r
}

// checkMemory checks that a runner which has met every kind of hostile peer holds no more
// memory than maxResident, and has never held more than maxPeak.
func checkMemory(t *testing.T, r *runner) {
	pid := r.process.Cmd.Process.Pid
	// Further requests give the runner time to free the memory that the hostile peers took.
	for limit := time.Now().Add(patience); programs.Memory(t, pid, "VmRSS") > maxResident && time.Now().Before(limit); {
		_, _ = r.buy(t, catalog.Ping().Path)
	}
	resident, peak := programs.Memory(t, pid, "VmRSS"), programs.Memory(t, pid, "VmHWM")
	if resident > maxResident || peak > maxPeak {
		t.Errorf("the runner holds %d KiB and held %d, want %d and %d at most", resident, peak, maxResident, maxPeak)
	}
}
