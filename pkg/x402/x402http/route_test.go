package x402http_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

const (
	cheapURL = "http://cheap.example/report?b=2&a=1"
	dearURL  = "http://dear.example/report?a=1&b=2"
	secondTo = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
)

// twoHosts returns several ways in which one program sells something cheap at one host and
// something expensive at another, at the same path and query.
func twoHosts() map[string]func(m *market, cheap, dear http.Handler) http.Handler {
	const pattern = "GET /report"
	muxOf := func(pattern string, h http.Handler) *http.ServeMux {
		mux := http.NewServeMux()
		mux.Handle(pattern, h)
		return mux
	}
	return map[string]func(m *market, cheap, dear http.Handler) http.Handler{
		"patterns with hosts": func(m *market, cheap, dear http.Handler) http.Handler {
			mux, s := http.NewServeMux(), m.seller()
			s.Handle(mux, "GET cheap.example/report", "0.01", cheap)
			s.Handle(mux, "GET dear.example/report", "5", dear)
			return mux
		},
		"nested muxes": func(m *market, cheap, dear http.Handler) http.Handler {
			mux, s := http.NewServeMux(), m.seller()
			mux.Handle("cheap.example/", muxOf(pattern, s.Sell("0.01", cheap)))
			mux.Handle("dear.example/", muxOf(pattern, s.Sell("5", dear)))
			return mux
		},
		"a switch without patterns": func(m *market, cheap, dear http.Handler) http.Handler {
			s := m.seller()
			return byHost{s.Sell("0.01", cheap), s.Sell("5", dear)}
		},
		"a switch without patterns, one origin": func(m *market, cheap, dear http.Handler) http.Handler {
			s := m.seller(singleOrigin("http://cheap.example"))
			return byHost{s.Sell("0.01", cheap), s.Sell("5", dear)}
		},
		"names": func(m *market, cheap, dear http.Handler) http.Handler {
			s := m.seller(singleOrigin("http://cheap.example"))
			return byHost{s.Sell("0.01", cheap, x402http.Named("cheap")), s.Sell("5", dear, x402http.Named("dear"))}
		},
		"two payees on one ledger": func(m *market, cheap, dear http.Handler) http.Handler {
			first, second := m.seller(), m.seller(withPayTo(secondTo))
			return byHost{muxOf(pattern, first.Sell("0.01", cheap)), muxOf(pattern, second.Sell("5", dear))}
		},
	}
}

// byHost passes requests for dear.example to one handler, and all other requests to another.
type byHost struct{ cheap, expensive http.Handler }

// ServeHTTP implements http.Handler.
func (b byHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Host == "dear.example" {
		b.expensive.ServeHTTP(w, r)
		return
	}
	b.cheap.ServeHTTP(w, r)
}

// TestCheapForDear checks that a payment for something cheap never buys something expensive,
// whether the payment is answered or its answer is owed. The expensive thing is sold at its
// price. An owed answer is given at the host where its payment was made.
func TestCheapForDear(t *testing.T) {
	t.Parallel()
	for name, open := range twoHosts() {
		for what, owed := range map[string]bool{"answered": false, "owed": true} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				runInMarket(t, func(m *market) {
					cheap, dear := newStock("cheap"), newStock("dear")
					cheap.isEmpty = owed
					m.shop = open(m, cheap, dear)
					_, cent := m.buy(cheapURL)
					time.Sleep(2 * time.Second)
					m.checkRefused("a cent at the dear one", m.get(dearURL, cent), "another request", true)
					dear.checkRuns(m, 0)
					r, five := m.buy(dearURL)
					m.checkAnswer("the dear one", r, "dear", false)
					cheap.isEmpty = false
					m.checkAnswer("the cheap one", m.get(cheapURL, cent), "cheap", !owed)
					m.checkAnswer("the dear one again", m.get(dearURL, five), "dear", true)
					m.checkRefused("the dear one's at the cheap one", m.get(cheapURL, five), "another request", true)
					m.checkTransfers("10000", "5000000")
					dear.checkRuns(m, 1)
				})
			})
		}
	}
}

// TestChangeOfPrice checks that an owed answer is given at its endpoint after any change of
// the endpoint's price and payee. A new payment of the new price counts for the same purchase,
// and is not charged.
func TestChangeOfPrice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		price  string
		change func(*x402http.Config)
	}{
		"up": {"5", withPayTo(payTo)}, "down": {"0.001", withPayTo(payTo)}, "another payee": {"0.01", withPayTo(secondTo)},
		"up, another payee": {"5", withPayTo(secondTo)},
	} {
		for who, anew := range map[string]bool{"the same payment": false, "a new signature": true} {
			t.Run(name+", "+who, func(t *testing.T) {
				t.Parallel()
				runInMarket(t, func(m *market) {
					weather := newStock("fair")
					weather.isEmpty = true
					m.openShop(weather)
					_, former := m.buy(oslo)
					mux := http.NewServeMux()
					m.seller(c.change).Handle(mux, "GET /weather", c.price, weather)
					m.shop = mux
					time.Sleep(2 * time.Second)
					weather.isEmpty = false
					signature := former
					if anew {
						signature = m.sign(oslo)
					}
					m.checkAnswer("after the change", m.get(oslo, signature), "fair", false)
					m.checkAnswer("the payment of the former price", m.get(oslo, former), "fair", true)
					m.checkTransfers("10000")
					weather.checkRuns(m, 2)
				})
			})
		}
	}
}

// TestSameName checks two handlers that cannot be told apart. That is an error of the program:
// requests to the second handler get status 500, with or without a payment, and the log says
// what to do. With names, both handlers sell.
func TestSameName(t *testing.T) {
	t.Parallel()
	nested := func(m *market, cheap, dear http.Handler, named ...x402http.Option) http.Handler {
		first, second, s := http.NewServeMux(), http.NewServeMux(), m.seller(singleOrigin("https://shop.example"))
		named = append(named, x402http.Describe("", ""), x402http.Describe("", ""))
		first.Handle("GET /report", s.Sell("0.01", cheap, named[0]))
		second.Handle("GET /report", s.Sell("5", dear, named[1]))
		return byHost{first, second}
	}
	runInMarket(t, func(m *market) {
		cheap, dear := newStock("cheap"), newStock("dear")
		m.shop = nested(m, cheap, dear)
		r, cent := m.buy(cheapURL)
		m.checkAnswer("the first", r, "cheap", false)
		for i, signature := range []string{"", cent, m.sign(cheapURL)} {
			r := m.get(dearURL, signature)
			if r.Status != http.StatusInternalServerError || !strings.Contains(string(r.Body), `"internal_error"`) || m.countLogged("x402http.Named") != i+1 {
				m.Errorf("the second: %d %s, log %s", r.Status, r.Body, m.log.String())
			}
		}
		m.checkAnswer("the first, still", m.get(cheapURL, cent), "cheap", true)
		m.checkTransfers("10000")
		dear.checkRuns(m, 0)
	})
	runInMarket(t, func(m *market) {
		cheap, dear := newStock("cheap"), newStock("dear")
		m.shop = nested(m, cheap, dear, x402http.Named("cheap"), x402http.Named("dear"))
		for url, body := range map[string]string{cheapURL: "cheap", dearURL: "dear"} {
			r, _ := m.buy(url)
			m.checkAnswer("with a name", r, body, false)
		}
		m.checkTransfers("10000", "5000000")
	})
}

// TestOtherPattern checks that a handler with a name keeps its purchases when it moves to
// another pattern. A handler without a name becomes another product there, so its earlier
// payments are refused.
func TestOtherPattern(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]x402http.Option{"with a name": {x402http.Named("weather")}, "without a name": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				answered, owed := newStock("fair"), newStock("fair")
				owed.isEmpty = true
				open := func(pattern string) {
					mux := http.NewServeMux()
					s := m.seller()
					s.Handle(mux, "GET answered.example"+pattern, "0.01", answered, options...)
					s.Handle(mux, "GET owed.example"+pattern, "0.01", owed, options...)
					m.shop = mux
				}
				open("/weather/{city}")
				_, had := m.buy("http://answered.example/weather/oslo")
				_, debt := m.buy("http://owed.example/weather/oslo")
				open("/{what...}")
				time.Sleep(2 * time.Second)
				owed.isEmpty = false
				stands, paid := m.get("http://answered.example/weather/oslo", had), m.get("http://owed.example/weather/oslo", debt)
				if options == nil {
					m.checkRefused("answered", stands, "another request", true)
					m.checkRefused("owed", paid, "another request", true)
					owed.checkRuns(m, 1)
				} else {
					m.checkAnswer("answered", stands, "fair", true)
					m.checkAnswer("owed", paid, "fair", false)
				}
				m.checkTransfers("10000", "10000")
			})
		})
	}
}

// TestWithoutAName checks that, for a handler with neither a pattern nor a name, the log says
// once why the handler needs a name.
func TestWithoutAName(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		cheap, dear := newStock("cheap"), newStock("dear")
		s := m.seller()
		m.shop = byHost{s.Sell("0.01", cheap), s.Sell("5", dear, x402http.Named("dear"))}
		for range 3 {
			m.buy(cheapURL)
			m.buy(dearURL)
		}
		if n := m.countLogged("x402http.Named names it"); n != 1 {
			m.Errorf("the log says it %d times: %s", n, m.log.String())
		}
		m.checkTransfers("10000", "5000000")
	})
}
