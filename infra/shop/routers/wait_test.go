package routers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/akrylysov/algnhsa"
	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// transports returns the ways in which requests can reach a program. Each function takes the
// program and returns a client for it.
func transports() map[string]func(t *testing.T, program http.Handler) *http.Client {
	return map[string]func(t *testing.T, program http.Handler) *http.Client{
		"HTTP/1.1": func(t *testing.T, program http.Handler) *http.Client { return overTLS(t, program, false) },
		"HTTP/2":   func(t *testing.T, program http.Handler) *http.Client { return overTLS(t, program, true) },
		"algnhsa": func(_ *testing.T, program http.Handler) *http.Client {
			// Each adapter gets its own options. Otherwise all adapters would write to one
			// variable of the library.
			options := &algnhsa.Options{}
			return &http.Client{Transport: lambdaTransport{algnhsa.New(program, options)}}
		},
		"Respond": func(_ *testing.T, program http.Handler) *http.Client {
			return &http.Client{Transport: handlerTransport{program}}
		},
	}
}

// overTLS serves a program on loopback until the test ends. The returned client sends every
// request to this program, whatever the host.
func overTLS(t *testing.T, program http.Handler, http2 bool) *http.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.ProtoMajor == 2) != http2 {
			t.Errorf("a request came over %s", r.Proto)
		}
		program.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // errors are expected, because clients go away
	server.StartTLS()
	t.Cleanup(server.Close)
	client := server.Client()
	transport, _ := client.Transport.(*http.Transport)
	client.Transport = fixedTransport{transport, server.Listener.Addr().String()}
	return client
}

// fixedTransport sends every request to one address, whatever its host.
type fixedTransport struct {
	*http.Transport
	address string
}

// RoundTrip implements http.RoundTripper.
func (d fixedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host, r.URL.Scheme, r.URL.Host = r.URL.Host, "https", d.address
	return d.Transport.RoundTrip(r)
}

// lambdaTransport sends each request as an event to a Lambda function, as an HTTP API of API
// Gateway does. Unlike a real function, it handles several events at once.
type lambdaTransport struct{ lambda.Handler }

// RoundTrip implements http.RoundTripper.
func (f lambdaTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	event := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery, Headers: map[string]string{"host": r.URL.Host},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RequestID: "id", DomainName: r.URL.Host, Stage: "$default", RouteKey: "$default",
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: r.Method, Path: r.URL.Path, SourceIP: "192.0.2.1"},
		},
	}
	for name, values := range r.Header {
		event.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	payload, err := f.Invoke(r.Context(), testbed.Must(json.Marshal(event)))
	if err != nil {
		return nil, err
	}
	var answer events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(payload, &answer); err != nil {
		return nil, err
	}
	res := &http.Response{StatusCode: answer.StatusCode, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer.Body))}
	for name, value := range answer.Headers {
		res.Header.Set(name, value)
	}
	return res, nil
}

// handlerTransport calls a handler without a connection. Like some adapters for functions, it
// keeps the whole answer in memory.
type handlerTransport struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host, r.RemoteAddr = r.URL.Host, "192.0.2.1"
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer.Result(), nil
}

const (
	slowRuns      = 4
	otherRequests = 200
)

// slowShop is a program that sells a slow handler. This handler exceeds its time limit. It
// reads its path parameter only long after that.
type slowShop struct {
	*market
	overdue chan struct{} // gets a value from each slow handler whose time is over
	end     chan struct{} // the handlers end when this channel is closed
}

func openSlow(t *testing.T, k kind, open func(*testing.T, http.Handler) *http.Client) *slowShop {
	t.Helper()
	s := &slowShop{market: openMarket(t), overdue: make(chan struct{}, slowRuns), end: make(chan struct{})}
	hasty := s.seller(func(c *x402http.Config) { c.Budget = 50 * time.Millisecond })
	says := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s, %s", k.param(r, "city"), r.PathValue("city"))
	})
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // the handler's time is over, but the handler continues
		s.overdue <- struct{}{}
		<-s.end
		says(w, r)
	})
	s.client.HTTP = open(t, k.open(
		newRoute("/v1", "/slow/{city}", hasty.Sell("0.01", slow, x402http.Named("slow"))),
		newRoute("/v1", "/quick/{city}", s.seller().Sell("0.01", says, x402http.Named("quick"))),
		newRoute("/v1", "/free/{city}", says),
	))
	return s
}

// TestSlowHandler checks that a seller waits for a handler that runs beyond its time. If the
// seller returned to the router earlier, the router would reuse the data of the request. The
// handler reads its own path parameters, through net/http and through the router, while
// requests with other parameters are served. The answer of the handler must be stored, and
// must be paid for once.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	for router, k := range kinds() {
		if k.param == nil {
			continue // handlers of this router get no path parameters
		}
		for transport, open := range transports() {
			t.Run(router+"/"+transport, func(t *testing.T) {
				t.Parallel()
				s := openSlow(t, k, open)
				signatures := make([]string, slowRuns)
				var runs sync.WaitGroup
				for i := range slowRuns {
					signatures[i] = testbed.Must(s.client.Sign(t.Context(), slowURL(i)))
					runs.Go(func() { s.buySlow(i, signatures[i]) })
				}
				for range slowRuns {
					<-s.overdue
				}
				s.askOthers()
				close(s.end)
				runs.Wait()
				for i, signature := range signatures {
					s.checkAnswer("afterwards", s.waitForAnswer(slowURL(i), signature), ownCity(i), true)
				}
				s.checkCents(slowRuns + paidOthers)
			})
		}
	}
}

func slowURL(i int) string { return fmt.Sprintf("http://shop.example/v1/slow/mine-%d", i) }

func ownCity(i int) string { return fmt.Sprintf("mine-%d, mine-%d", i, i) }

// buySlow sends a payment to the slow handler. The response may be a 504, which means that the
// answer is owed. Some transports send the 504 before the handler ends. The other transports
// wait for the handler, but the seller may choose the 504 when the handler's time ends.
func (s *slowShop) buySlow(i int, signature string) {
	r := s.get(slowURL(i), signature)
	if r.Status != http.StatusGatewayTimeout && string(r.Body) != ownCity(i) {
		s.Errorf("slow: %d %s", r.Status, r.Body)
	}
}

// paidOthers is how many of the requests by askOthers have a payment.
const paidOthers = 10

// askOthers sends requests with other parameters, several at once: some are free, some lack a
// payment, and a few are paid.
func (s *slowShop) askOthers() {
	s.Helper()
	numbers := make(chan int, otherRequests)
	for i := range otherRequests {
		numbers <- i
	}
	close(numbers)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range numbers {
				s.askOther(i)
			}
		})
	}
	workers.Wait()
}

func (s *slowShop) askOther(i int) {
	city := fmt.Sprint("other-", i)
	path := "http://shop.example/v1/free/" + city
	status, body := http.StatusOK, city+", "+city
	switch {
	case i < paidOthers:
		r, _, err := s.client.Buy(s.Context(), "http://shop.example/v1/quick/"+city)
		if err != nil || r.Status != http.StatusOK || string(r.Body) != body {
			s.Errorf("another paid request: %d %s, %v", r.Status, r.Body, err)
		}
		return
	case i%2 == 0:
		path = "http://shop.example/v1/slow/" + city
		status = http.StatusPaymentRequired
	}
	r := s.get(path, "")
	if r.Status != status || status == http.StatusOK && string(r.Body) != body {
		s.Errorf("another request: %d %s", r.Status, r.Body)
	}
}

// waitForAnswer repeats a payment until the late answer is stored. Over a real connection, a
// client has no other way to find out that the answer is stored.
func (s *slowShop) waitForAnswer(url, signature string) x402test.Reply {
	s.Helper()
	for {
		r := s.get(url, signature)
		if r.Status != http.StatusConflict {
			return r
		}
	}
}

// checkCents checks that exactly n payments of a cent have moved money.
func (s *slowShop) checkCents(n int) {
	s.Helper()
	cents := make([]string, n)
	for i := range cents {
		cents[i] = "10000"
	}
	s.checkTransfers(cents...)
}

// TestInvocationLasts checks that an invocation behind an adapter for functions lasts until
// its handler has ended. Lambda freezes the process after an invocation, so a handler that
// still runs would stop.
func TestInvocationLasts(t *testing.T) {
	t.Parallel()
	for _, adapter := range []string{"algnhsa", "Respond"} {
		t.Run(adapter, func(t *testing.T) {
			t.Parallel()
			s := openSlow(t, kinds()["chi"], transports()[adapter])
			signature := testbed.Must(s.client.Sign(t.Context(), slowURL(0)))
			ended := make(chan struct{})
			go func() {
				s.buySlow(0, signature)
				close(ended)
			}()
			<-s.overdue
			if r := s.get(slowURL(0), signature); r.Status != http.StatusConflict || r.Header.Get("Retry-After") == "" {
				t.Errorf("while it runs: %d %v %s", r.Status, r.Header, r.Body)
			}
			select {
			case <-ended:
				t.Error("the invocation ended before its handler")
			default:
			}
			close(s.end)
			<-ended
			r := s.get(slowURL(0), signature) // one request is enough: the answer was stored before the invocation ended
			s.checkAnswer("afterwards", r, ownCity(0), true)
			s.checkTransfers("10000")
		})
	}
}

// TestClientGoesAway checks that a handler keeps the data that the router gave it, even after
// the client has gone away.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	for router, k := range kinds() {
		if k.param == nil {
			continue
		}
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(router+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				s := openSlow(t, k, transports()[protocol])
				signature := testbed.Must(s.client.Sign(t.Context(), slowURL(0)))
				ctx, leave := context.WithCancel(t.Context())
				gone := make(chan struct{})
				go func() {
					_, _ = s.client.Get(ctx, slowURL(0), signature) // the response may be a 504 before the client leaves
					close(gone)
				}()
				<-s.overdue
				leave()
				<-gone
				s.askOthers()
				close(s.end)
				r := s.waitForAnswer(slowURL(0), signature)
				s.checkAnswer("afterwards", r, ownCity(0), true)
				s.checkCents(1 + paidOthers)
			})
		}
	}
}
