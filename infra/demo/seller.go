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
	"strconv"
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

// The indexes of the settlements that fail, among the calls to /settle.
const (
	lyingSettlement  = 0 // the money moves, and the facilitator answers 500
	killedSettlement = 1 // the seller is killed while it waits for the facilitator, before any money moves
)

// explainDelay is how long a reply may take before the timeline explains why the client waits.
// If a reply takes at least this long, the timeline also shows the time that it took.
const explainDelay = time.Second

// seller is one of the two sellers, with its own facilitator, network, resolver and client.
type seller struct {
	tell        func(tone, string)
	folder      string // the folder of the ledger
	program     string
	env         map[string]string
	facilitator *x402test.Facilitator
	stopServers []func() // each function stops a server; the method close calls them
	address     *url.URL // the URL at which the seller listens
	buyer       *buyer

	mu                 sync.Mutex
	process            *programs.Process
	settleCalls        int       // the number of calls to /settle so far
	killed             time.Time // when the seller was killed
	interruptedPayment string    // the payment that the kill interrupted; empty after the timeline has named it, or the seller has settled again
	waitExplained      bool      // whether the timeline has said that the seller waits for a lease
	foundDown          bool      // whether the client has found the seller down during this turn
	answerLost         bool      // whether the network has lost an answer
}

// newSeller starts a seller and the servers around it. The seller is a program that reads
// LOCAL_ADDR, FACILITATOR_URL and PAY_TO, and prints the URL at which it is ready.
func newSeller(ctx context.Context, program string, tell func(tone, string)) (s *seller, err error) {
	s = &seller{tell: tell}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.program, err = filepath.Abs(program); err != nil {
		return s, err
	}
	if err := s.surround(ctx); err != nil {
		return s, err
	}
	return s, s.start()
}

// surround starts the servers that the seller needs.
func (s *seller) surround(ctx context.Context) error {
	payee, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return err
	}
	terms := x402.USDC()
	terms.PayTo = payee.Address().Checksum()
	if s.facilitator, err = x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now}); err != nil {
		return err
	}
	if s.folder, err = os.MkdirTemp("", "hostfacts-demo-"); err != nil {
		return err
	}
	resolver, err := testbed.ListenDNS("127.0.0.1:0", testbed.ParseZone(zone))
	if err != nil {
		return err
	}
	s.stopServers = append(s.stopServers, func() { _ = resolver.Close() })
	// The seller must listen at the same address again after a kill, so the address is chosen
	// here.
	addr, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	s.address = &url.URL{Scheme: "http", Host: addr}
	facilitator, err := s.serve(ctx, testbed.Relay{Do: s.relayToFacilitator, To: s.facilitator})
	if err != nil {
		return err
	}
	line, err := s.serve(ctx, testbed.Relay{Do: s.relayToSeller, To: s.sellerProxy()})
	if err != nil {
		return err
	}
	s.env = map[string]string{
		"LOCAL_ADDR":      addr,
		"BASE_URL":        line,
		"PAY_TO":          terms.PayTo,
		"FACILITATOR_URL": facilitator,
		"DNS_RESOLVERS":   resolver.Addr,
	}
	s.buyer, err = newBuyer(line+"/v1/tools/dns?domain=example.com&type=MX", s.tell)
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

// serve serves a handler until close is called, and returns the URL of the handler. Each
// request has a new connection. If a reused connection broke, the HTTP library of the client
// might send the request once more without being asked.
func (s *seller) serve(ctx context.Context, h http.Handler) (address string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.Serve(listener) }() // Serve returns when the server is closed
	s.stopServers = append(s.stopServers, func() { _ = server.Close() })
	return "http://" + listener.Addr().String(), nil
}

// close ends the seller and all servers, and removes the folder of the ledger.
func (s *seller) close() {
	if s.process != nil {
		s.process.Kill()
	}
	for _, end := range s.stopServers {
		end()
	}
	_ = os.RemoveAll(s.folder) // at worst, a temporary folder stays
}

// start starts the seller, and returns when the seller takes connections.
func (s *seller) start() error {
	process, err := programs.Start(testbed.Local(s.program, s.folder, s.env))
	if err != nil {
		return fmt.Errorf("%w (make demo builds what it starts)", err)
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	return process.Ready()
}

// turn lets the client try to buy once. If the client found the seller down, turn then starts
// the seller again.
func (s *seller) turn(ctx context.Context) error {
	if err := s.buyer.try(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	down := s.foundDown
	s.foundDown = false
	s.mu.Unlock()
	if !down {
		return nil
	}
	if err := s.start(); err != nil {
		return err
	}
	s.tell(plain, "seller is started again")
	return nil
}

// hasEnded reports whether the seller's process has ended, because the seller was killed.
func (s *seller) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.process.Gone():
		return true
	default:
		return false
	}
}

// relayToFacilitator relays a request to the facilitator. The first settlement succeeds, but
// the seller gets the answer 500. The second settlement does not reach the facilitator: the
// seller is killed while it waits.
func (s *seller) relayToFacilitator(r *testbed.Relayed) {
	if r.URL.Path != "/settle" {
		r.Pass()
		return
	}
	s.mu.Lock()
	turn := s.settleCalls
	s.settleCalls++
	s.mu.Unlock()
	payment := s.buyer.paymentName(r.Sent)
	switch turn {
	case lyingSettlement:
		s.report(payment, r.Answer().Body.Bytes())
		s.tell(bad, "facilitator answers 500")
		r.WriteHeader(http.StatusInternalServerError)
	case killedSettlement:
		s.tell(plain, "facilitator is asked for "+payment+" (no money moves)")
		s.kill(payment)
		r.Drop()
	default:
		s.reportResumed()
		answer := r.Answer()
		s.report(payment, answer.Body.Bytes())
		r.Send(answer, answer.Body.Len())
	}
}

// kill kills the seller, and records which payment the seller was settling.
func (s *seller) kill(payment string) {
	s.tell(bad, "seller is killed (kill -9)")
	s.mu.Lock()
	s.killed = time.Now()
	s.interruptedPayment = payment
	s.mu.Unlock()
	s.process.Kill()
}

// reportResumed is called when the seller settles again after the kill. If the seller had to
// wait for the lease of the killed process, reportResumed prints how long after the kill the
// seller goes on.
func (s *seller) reportResumed() {
	s.mu.Lock()
	waited := s.waitExplained
	since := time.Since(s.killed)
	s.interruptedPayment = ""
	s.waitExplained = false
	s.mu.Unlock()
	if waited {
		s.tell(plain, fmt.Sprintf("seller goes on, %s after the kill", seconds(since)))
	}
}

// explain starts a timer. If the lease of the killed process still blocks a payment when the
// timer ends, the timeline says once that the seller waits for the lease. When the seller has
// answered or has ended, the caller must call the returned function, which stops the timer.
func (s *seller) explain() (stop func()) {
	timer := time.AfterFunc(explainDelay, func() {
		s.mu.Lock()
		payment := s.interruptedPayment
		s.interruptedPayment = ""
		s.waitExplained = s.waitExplained || payment != ""
		s.mu.Unlock()
		if payment != "" {
			s.tell(plain, "the killed process still holds "+payment+"; the seller waits until its lease ends")
		}
	})
	return func() { timer.Stop() }
}

// report prints what the chain did with a payment.
func (s *seller) report(payment string, answer []byte) {
	var settled x402.SettleResponse
	switch err := json.Unmarshal(answer, &settled); {
	case err == nil && settled.Success:
		s.tell(money, "facilitator moves "+payment)
	case err == nil && settled.ErrorReason == x402.ReasonNonceUsed:
		s.tell(plain, "facilitator: "+payment+" moved before")
	default:
		s.tell(bad, "facilitator refuses "+payment)
	}
}

// sellerProxy returns a handler that forwards requests to the seller. If the seller gives no
// answer, the handler closes the client's connection.
func (s *seller) sellerProxy() http.Handler {
	return &httputil.ReverseProxy{
		Transport:    &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(s.address) },
	}
}

// relayToSeller relays a request as the network between the client and the seller. It loses
// the first paid answer. While the seller is down, a request gets no answer.
func (s *seller) relayToSeller(r *testbed.Relayed) {
	if s.hasEnded() {
		s.tell(bad, "seller is down")
		s.mu.Lock()
		s.foundDown = true
		s.mu.Unlock()
		r.Drop()
		return
	}
	defer s.explain()()
	answer := r.Answer()
	if s.losesAnswer(r.Request, answer.Code) {
		s.tell(plain, "seller answers")
		s.tell(bad, "network loses the answer")
		r.Drop()
		return
	}
	r.Send(answer, answer.Body.Len())
}

// losesAnswer decides whether the network loses an answer. Only the first paid answer is lost.
func (s *seller) losesAnswer(r *http.Request, status int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answerLost || status != http.StatusOK || r.Header.Get(x402.HeaderSignature) == "" {
		return false
	}
	s.answerLost = true
	return true
}

// sums holds the totals for one seller at the end.
type sums struct {
	transfers int   // the number of transfers on the chain
	answers   int   // the number of answers that the client has received
	paid      int64 // the sum of the transfers, in atomic units of USDC
}

func (s *seller) sums() sums {
	transfers := s.facilitator.Transfers()
	var paid int64
	for _, t := range transfers {
		value, _ := strconv.ParseInt(t.Value, 10, 64) // the facilitator has checked that the value is a number
		paid += value
	}
	return sums{transfers: len(transfers), answers: s.buyer.answers, paid: paid}
}

// isPaidOnce reports whether the client has one answer and has paid for it once.
func (s sums) isPaidOnce() bool { return s.transfers == 1 && s.answers == 1 }
