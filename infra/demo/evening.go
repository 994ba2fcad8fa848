package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// zone is the DNS zone of the resolver.
const zone = `
com.         3600 NS a.gtld-servers.net.
example.com. 300  MX 10 mx1.example.com.
example.com. 300  MX 20 mx2.example.com.
`

// The settlements that fail. They are numbered from 0, in the order of the calls to the
// facilitator.
const (
	lies  = 0 // the money moves, and the answer is 500
	kills = 1 // the seller is killed while it waits, before any money moves
)

// evening is a seller with its facilitator, network and resolver.
type evening struct {
	tell    func(tone, string)
	folder  string // where the ledger is
	program string
	env     map[string]string
	money   *x402test.Facilitator
	open    []func() // close calls them
	seller  *url.URL // where the seller listens
	buyer   *buyer

	mu      sync.Mutex
	process *programs.Process
	settled int  // how many settlements were requested
	lost    bool // whether the network has lost an answer
	broken  error
}

// newEvening starts a seller and everything around it. The seller is a program that reads
// LOCAL_ADDR, FACILITATOR_URL and PAY_TO, and prints the URL at which it is ready.
func newEvening(ctx context.Context, program string, tell func(tone, string)) (e *evening, err error) {
	e = &evening{tell: tell}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.program, err = filepath.Abs(program); err != nil {
		return e, err
	}
	if err := e.surround(ctx); err != nil {
		return e, err
	}
	return e, e.start()
}

// surround starts the servers that the seller needs.
func (e *evening) surround(ctx context.Context) error {
	payee, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return err
	}
	terms := x402.USDC()
	terms.PayTo = payee.Address().Checksum()
	if e.money, err = x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now}); err != nil {
		return err
	}
	if e.folder, err = os.MkdirTemp("", "hostfacts-demo-"); err != nil {
		return err
	}
	resolver, err := testbed.ListenDNS("127.0.0.1:0", testbed.ParseZone(zone))
	if err != nil {
		return err
	}
	e.open = append(e.open, func() { _ = resolver.Close() })
	// The seller must have the same address after a kill.
	addr, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	e.seller = &url.URL{Scheme: "http", Host: addr}
	facilitator, err := e.serve(ctx, testbed.Relay{Do: e.settle, To: e.money})
	if err != nil {
		return err
	}
	line, err := e.serve(ctx, testbed.Relay{Do: e.carry, To: e.toSeller()})
	if err != nil {
		return err
	}
	e.env = map[string]string{
		"LOCAL_ADDR":      addr,
		"BASE_URL":        line,
		"PAY_TO":          terms.PayTo,
		"FACILITATOR_URL": facilitator,
		"DNS_RESOLVERS":   resolver.Addr,
	}
	e.buyer, err = newBuyer(line+"/v1/tools/dns?domain=example.com&type=MX", e.tell)
	return err
}

// freeAddr returns an address of this machine on which no program listens.
func freeAddr(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// serve serves a handler until close is called, and returns its URL. Each request has a new
// connection. If a reused connection broke, the client's HTTP library might send the request
// again by itself.
func (e *evening) serve(ctx context.Context, h http.Handler) (address string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.Serve(listener) }() // it ends with Close
	e.open = append(e.open, func() { _ = server.Close() })
	return "http://" + listener.Addr().String(), nil
}

// close ends the seller and all servers, and removes the folder.
func (e *evening) close() {
	if e.process != nil {
		e.process.Kill()
	}
	for _, end := range e.open {
		end()
	}
	_ = os.RemoveAll(e.folder) // it is a temporary folder
}

// start starts the seller, and returns when it takes connections.
func (e *evening) start() error {
	process, err := programs.Start(testbed.Local(e.program, e.folder, e.env))
	if err != nil {
		return fmt.Errorf("%w (make demo builds what it starts)", err)
	}
	e.mu.Lock()
	e.process = process
	e.mu.Unlock()
	return process.Ready()
}

// restart starts the seller again, with the same ledger.
func (e *evening) restart() {
	if err := e.start(); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.broken = err
		return
	}
	e.tell(plain, "seller is started again")
}

// fault returns an error that prevents the demo from continuing, or nil.
func (e *evening) fault() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.broken
}

// gone reports whether the seller has been killed.
func (e *evening) gone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.process.Gone():
		return true
	default:
		return false
	}
}

// settle relays a request to the facilitator. The first settlement succeeds, but is answered
// with 500; during the second, the seller is killed.
func (e *evening) settle(r *testbed.Relayed) {
	if r.URL.Path != "/settle" {
		r.Pass()
		return
	}
	e.mu.Lock()
	turn := e.settled
	e.settled++
	e.mu.Unlock()
	payment := e.buyer.name(r.Sent)
	switch turn {
	case lies:
		e.report(payment, r.Answer().Body.Bytes())
		e.tell(bad, "facilitator answers 500")
		r.WriteHeader(http.StatusInternalServerError)
	case kills:
		e.tell(plain, "facilitator is asked for "+payment)
		e.tell(bad, "seller is killed (kill -9)")
		e.process.Kill()
		r.Drop()
	default:
		answer := r.Answer()
		e.report(payment, answer.Body.Bytes())
		r.Send(answer, answer.Body.Len())
	}
}

// report prints what the chain did with a payment.
func (e *evening) report(payment string, answer []byte) {
	var settled x402.SettleResponse
	switch err := json.Unmarshal(answer, &settled); {
	case err == nil && settled.Success:
		e.tell(money, "facilitator moves "+payment)
	case err == nil && settled.ErrorReason == x402.ReasonNonceUsed:
		e.tell(plain, "facilitator: "+payment+" moved before")
	default:
		e.tell(bad, "facilitator refuses "+payment)
	}
}

// toSeller forwards requests to the seller. If the seller gives no answer, it closes the
// connection.
func (e *evening) toSeller() http.Handler {
	return &httputil.ReverseProxy{
		Transport:    &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(e.seller) },
	}
}

// carry is the network between the client and the seller. It loses the first paid answer. If
// the seller is down, the request gets no answer, and carry starts the seller again.
func (e *evening) carry(r *testbed.Relayed) {
	if e.gone() {
		e.tell(bad, "seller is down")
		e.restart()
		r.Drop()
		return
	}
	answer := r.Answer()
	if e.loses(r.Request, answer.Code) {
		e.tell(plain, "seller answers")
		e.tell(bad, "network loses the answer")
		r.Drop()
		return
	}
	r.Send(answer, answer.Body.Len())
}

// loses reports whether the line loses this answer.
func (e *evening) loses(r *http.Request, status int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost || status != http.StatusOK || r.Header.Get(x402.HeaderSignature) == "" {
		return false
	}
	e.lost = true
	return true
}

// sums holds the totals at the end.
type sums struct {
	transfers int // on the chain
	answers   int // received by the client
}

func (e *evening) sums() sums {
	return sums{transfers: len(e.money.Transfers()), answers: e.buyer.answers}
}
