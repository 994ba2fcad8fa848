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
	more   string // further query parameters, encoded
	want   want
}

// want is an expected answer: an error with a code, or the status 200 if code is empty. The
// body must contain all of the texts.
type want struct {
	code  fault.Code
	texts []string
}

func has(texts ...string) want { return want{texts: texts} }

// fails returns an expected answer that is an error with a code. The error's message begins
// with the given text, if any.
func fails(code fault.Code, message ...string) want {
	return want{code, []string{fmt.Sprintf(`"code":"%s","message":"%s`, code, strings.Join(message, ""))}}
}

// child returns what a bundle's answer must contain for a failed child.
func child(name string, code fault.Code) string {
	return fmt.Sprintf(`"%s":{"error":{"code":"%s"`, name, code)
}

// asks returns a function that makes a row for an operation. That function takes a name (see
// full), the expected answer, and further parameters of the query.
func asks(op string) func(name string, w want, more ...string) row {
	return func(name string, w want, more ...string) row {
		return row{op: op, domain: full(name), want: w, more: strings.Join(more, "&")}
	}
}

// alike returns rows of an operation for several names, which must all get the same answer.
func alike(op string, w want, names ...string) []row {
	var rows []row
	for _, name := range names {
		rows = append(rows, asks(op)(name, w))
	}
	return rows
}

// full returns the domain name for a name in a table. A name without any kind of dot is below
// example.com.
func full(name string) string {
	if strings.ContainsAny(name, ".\u3002\uff0e\uff61") {
		return name
	}
	return name + ".example.com"
}

func (r row) String() string {
	if r.name != "" {
		return r.op + ": " + r.name
	}
	return r.op + ": " + r.domain + " " + r.more
}

func (r row) query() string {
	return strings.TrimSuffix("?domain="+url.QueryEscape(r.domain)+"&"+r.more, "&")
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

// ranOut matches the answers that are possible after one of the service's own calls has
// exceeded a time limit.
var ranOut = regexp.MustCompile(`"charged":null|"code":"(\w+_timeout|ledger_unavailable)"`)

// observed collects what the answers have shown so far.
type observed struct {
	facts sync.Map         // the noted facts, such as that an operation answered with an error code
	api   *clients.OpenAPI // the description to which every answer must conform
}

func (o *observed) note(parts ...any) { o.facts.Store(fmt.Sprint(parts...), true) }

var member = regexp.MustCompile(`"([a-z0-9_-]+)":(null|"[a-z]+")?`)

// play pays for a row, and checks the answer against the row and the OpenAPI description. If
// the answer may be wrong only because the machine was busy, play pays again.
func (o *observed) play(t *testing.T, s *runner, r row) {
	testbed.Fairly(t, patience, func(tb testing.TB, p *testbed.Pace) { o.playOnce(tb, p, s, r) })
}

func (o *observed) playOnce(t testing.TB, p *testbed.Pace, s *runner, r row) {
	op, known := catalog.BySlug(r.op)
	if !known {
		t.Fatalf("there is no operation %s", r.op)
	}
	reply, err := s.buy(t, op.Path+r.query())
	// On a busy machine, the client may write the request later than the service allows for a
	// new connection. The client then gets an error that package net/http does not export, so
	// this code looks for the error's text.
	if err != nil && strings.Contains(err.Error(), "server closed idle connection") || ranOut.Match(reply.Body) && len(r.faults(reply)) > 0 {
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
	for _, m := range member.FindAllStringSubmatch(string(reply.Body), -1) {
		o.note(op.Slug, ".", m[1], " null: ", m[2] == "null")
		o.note(m[0])
	}
}

func bundleRows() []row {
	uptime, intel := asks("uptime-check"), asks("host-intel")
	const resolved, named, registered = `"records":[{"address":"`, `"hostname_match":true`, `"handle":"1234_DOMAIN_COM-VRSN"`
	return []row{
		uptime("example.com", has(`"verdict":"up"`, resolved, named, `"status":200`)),
		uptime("expired", has(`"verdict":"degraded"`, `"expired":true`, `"status":200`)),
		uptime("http500", has(`"verdict":"degraded"`, `"status":500`)),
		uptime("gone", has(`"verdict":"down"`, child("dns", lookup.NXDomain), child("ssl", lookup.NXDomain), child("headers", lookup.NXDomain))),
		uptime("silent", has(`"verdict":"down"`, child("dns", lookup.DNSTimeout), child("ssl", lookup.SSLTimeout), child("headers", lookup.HeadersTimeout))),
		uptime("unrouted", has(`"verdict":"down"`, `"ttl":null`, child("ssl", lookup.ConnectFailed), child("headers", lookup.ConnectFailed))),
		uptime("loopback", has(`"verdict":"down"`, resolved+`127.0.0.1"`, child("ssl", lookup.BlockedAddress), child("headers", lookup.BlockedAddress))),
		intel("example.com", has(`"type":"A"`, `"serial":"0a1b2c"`, registered)),
		intel("example.com", has(`"type":"MX"`, `"preference":10`, named, `"dnssec":true`), "dns_type=MX"),
		intel("missing.com", has(child("dns", lookup.NXDomain), child("ssl", lookup.NXDomain), child("whois", lookup.NotFound))),
		intel("silent", has(child("dns", lookup.DNSTimeout), child("ssl", lookup.SSLTimeout), registered)),
		intel("example.com", fails(lookup.InvalidType), "dns_type=ANY"),
	}
}

const patience = 60 * time.Second

// runner is a running service: the local runner with play money, or the built functions.
type runner struct {
	url     string
	far     farNamespace // the network namespace in which the service runs
	log     *programs.Output
	process *programs.Process
	turns   chan struct{} // its capacity limits the concurrent requests; nil means no limit
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
	p := testbed.Must(programs.StartWith(cmd, programs.Options{Begin: n.far.start}))
	r := &runner{far: n.far, log: &p.Log, process: p}
	t.Cleanup(func() {
		p.End(t)
		r.sound(t)
	})
	testbed.Check(p.Ready())
	r.url = p.URL
	return r
}

// sound fails the test if the service's log shows a crash.
func (r *runner) sound(t *testing.T) {
	if crash := programs.Crash(r.log.String()); crash != "" {
		t.Errorf("the log says %s", crash)
	}
}

// client returns a client with a new wallet, in the network namespace of the service.
func (r *runner) client(t testing.TB) *x402test.Client {
	transport := &http.Transport{DialContext: r.far.dial, DisableKeepAlives: true, DisableCompression: true}
	return testbed.NewClient(t, &http.Client{Timeout: patience, Transport: transport})
}

func (r *runner) document(t testing.TB, path string) []byte {
	return testbed.Must(r.client(t).Get(t.Context(), r.url+path, "")).Body
}

func (r *runner) buy(t testing.TB, path string) (x402test.Reply, error) {
	if r.turns != nil {
		r.turns <- struct{}{}
		defer func() { <-r.turns }()
	}
	reply, _, err := r.client(t).Buy(t.Context(), r.url+path)
	return reply, err
}

// maxResident is the limit of design §12 for the memory of an instance after 1,000 paid
// requests, in KiB. It applies although the runner also holds the ledger's file and the
// play-money facilitator. maxPeak is the limit at any moment, even while each of 48 hostile
// peers sends as much as the service accepts.
const maxResident, maxPeak = 64 << 10, 128 << 10

// deploy starts the built functions as the template deploys them, but without limits and
// without a node of the chain. The test fails if an invocation fails or does not end by
// itself.
func deploy(t *testing.T, n *internet) *runner {
	r := &runner{log: new(programs.Output), turns: make(chan struct{}, 12)} // at most 12 requests at once, because each has a process
	db := cloud.StartDynamo(t)
	t.Cleanup(func() { r.sound(t) }) // cleanups run in reverse order, so the deployment is closed before this check
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

// nothingLeft checks that a runner which has met every kind of hostile peer holds no more
// memory than maxResident, and has never held more than maxPeak.
func nothingLeft(t *testing.T, r *runner) {
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
