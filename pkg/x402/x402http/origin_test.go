package x402http_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestOrigins checks that a Host which belongs to an origin of the program selects that
// origin, in any letter case and with the default port of its scheme. A Host that belongs to
// no origin appears in no offer and no purchase.
func TestOrigins(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"shop.example": "https://shop.example", "SHOP.example": "https://shop.example", "shop.example:443": "https://shop.example",
		"other.example:8080": "http://other.example:8080", "plain.example:80": "http://plain.example",
		"phishing.example": "https://shop.example", "": "https://shop.example", "shop.example:80": "https://shop.example",
		"other.example": "https://shop.example", "plain.example:443": "https://shop.example",
	} {
		runInMarket(t, func(m *market) {
			mux := http.NewServeMux()
			m.seller(func(c *x402http.Config) {
				c.Origin, c.OtherOrigins = "https://shop.example", []string{"http://other.example:8080", "http://plain.example"}
			}).Handle(mux, "GET /weather", "0.01", newStock("fair"))
			r := httptest.NewRequest(http.MethodGet, "/weather", nil)
			r.Host = host
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			offer := must(x402test.Reply{Header: w.Header()}.Required())
			if offer.Resource.URL != want+"/weather" {
				m.Errorf("%q is offered as %s, want %s", host, offer.Resource.URL, want)
			}
		})
	}
}

// TestPurchasesOfTwoOrigins checks that each origin has separate purchases, with an
// Idempotency-Key and without one. Two shops of one program can both have an order 1, and a
// purchase at one shop does not count at the other.
func TestPurchasesOfTwoOrigins(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"with a key": "order-1", "without a key": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				mux := http.NewServeMux()
				m.seller().Handle(mux, "GET /report", "0.01", newStock("report"))
				m.shop = mux
				m.key = key
				for _, url := range []string{cheapURL, dearURL} {
					r, _ := m.buy(url)
					m.checkAnswer(url, r, "report", false)
				}
				for _, url := range []string{cheapURL, dearURL} {
					r, _ := m.buy(url)
					m.checkAnswer(url+" again", r, "report", true)
				}
				m.checkTransfers("10000", "10000")
			})
		})
	}
}

// TestUnnamedAtOneURL checks two handlers that have neither a pattern nor a name, and sell at
// the same URL for the same price. They cannot be told apart, so requests for the second one
// get status 500.
func TestUnnamedAtOneURL(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		s := m.seller(singleOrigin("http://cheap.example"))
		oslo, rome := newStock("oslo"), newStock("rome")
		m.shop = byHost{s.Sell("0.01", oslo), s.Sell("0.01", rome)}
		r, signature := m.buy(cheapURL)
		m.checkAnswer("the first", r, "oslo", false)
		if r := m.get(dearURL, signature); r.Status != http.StatusInternalServerError || m.countLogged("x402http.Named") == 0 {
			m.Errorf("the second: %d %s", r.Status, r.Body)
		}
		rome.checkRuns(m, 0)
	})
}

// TestNameOfAPurchase checks the field Sale.Purchase that a handler gets. It is the same in all
// runs for one payment, and differs in the runs for another payment.
func TestNameOfAPurchase(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		var names []string
		m.openShop(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sale, _ := x402.SaleOf(r.Context())
			names = append(names, sale.Purchase)
			if len(names)%2 == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		for range 2 {
			_, signature := m.buy(oslo)
			time.Sleep(2 * time.Second)
			m.get(oslo, signature)
			time.Sleep(time.Minute)
		}
		if len(names) != 4 || names[0] != names[1] || names[2] != names[3] || names[0] == names[2] || len(names[0]) != 64 {
			m.Errorf("%q", names)
		}
	})
}

// TestClientsBehindAProxy checks that clients behind a proxy have separate limits if
// Config.Client tells them apart, by an address or by another name.
func TestClientsBehindAProxy(t *testing.T) {
	t.Parallel()
	forwarded := func(r *http.Request) string { return r.Header.Get("X-Forwarded-For") }
	for name, c := range map[string]struct {
		client        func(*http.Request) string
		first, second string
		limited       bool
	}{
		"not told":      {nil, "192.0.2.7", "192.0.2.8", true},
		"addresses":     {forwarded, "192.0.2.7", "192.0.2.8", false},
		"the same":      {forwarded, "192.0.2.7:1", "192.0.2.7:2", true},
		"names":         {forwarded, "alice", "bob", false},
		"the same name": {forwarded, "alice", "alice", true},
		"no name":       {forwarded, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				mux := http.NewServeMux()
				m.seller(func(s *x402http.Config) { s.PerMinute, s.Client = 2, c.client }).Handle(mux, "GET /weather", "0.01", newStock("fair"))
				ask := func(from string) int {
					r := httptest.NewRequest(http.MethodGet, "/weather", nil)
					r.Header.Set("X-Forwarded-For", from)
					w := httptest.NewRecorder()
					mux.ServeHTTP(w, r)
					return w.Code
				}
				for range 2 {
					ask(c.first)
				}
				if limited := ask(c.second) == http.StatusTooManyRequests; limited != c.limited {
					m.Errorf("the second client is limited: %v", limited)
				}
			})
		})
	}
}

// TestRouteInTheLog checks that the log names the route of a request by its pattern or its
// name.
func TestRouteInTheLog(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		s, mux := m.seller(), http.NewServeMux()
		s.Handle(mux, "GET /weather/{city}", "0.01", newStock("fair"))
		s.Handle(mux, "GET /tides", "0.01", newStock("high"), x402http.Named("tides-v1"))
		bare := s.Sell("0.01", newStock("bare"))
		m.shop = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/bare" {
				bare.ServeHTTP(w, r)
				return
			}
			mux.ServeHTTP(w, r)
		})
		for _, path := range []string{"weather/oslo", "weather/rome", "tides", "bare"} {
			m.get("http://shop.example/"+path, "")
		}
		for route, want := range map[string]int{"/weather/{city}": 2, "tides-v1": 1, "unnamed": 1} {
			if n := m.countLogged("operation=" + route + " "); n != want {
				m.Errorf("%s is logged %d times, want %d: %s", route, n, want, m.log.String())
			}
		}
	})
}

// TestStatusesThatAreOwed checks statuses that do not complete a purchase. The handler of a
// slow job answers 202 and is sold with Owed: until the job is done, its client gets 503 with
// the handler's text and pause. The answer is owed after a 402 as well, because clients would
// otherwise pay again.
func TestStatusesThatAreOwed(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{
		http.StatusAccepted: http.StatusServiceUnavailable, http.StatusFound: http.StatusServiceUnavailable,
		http.StatusPaymentRequired: http.StatusServiceUnavailable, http.StatusNotFound: http.StatusNotFound, http.StatusBadGateway: http.StatusBadGateway,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				done := false
				m.openShop(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if !done {
						w.Header().Set("Retry-After", "30")
						w.WriteHeader(status)
						_, _ = io.WriteString(w, `{"state":"running"}`)
						return
					}
					_, _ = io.WriteString(w, "done")
				}), x402http.Owed(202, 302, 404))
				r, signature := m.buy(oslo)
				if r.Status != want || r.RetryAfter() != 30*time.Second || !strings.Contains(string(r.Body), "running") {
					m.Errorf("%d %v %s, want %d", r.Status, r.Header, r.Body, want)
				}
				done = true
				time.Sleep(30 * time.Second)
				m.checkAnswer("the job", m.get(oslo, signature), "done", false)
				m.checkTransfers("10000")
			})
		})
	}
}
