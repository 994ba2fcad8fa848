package routers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// layout is a way in which a program sells something cheap and something expensive.
type layout struct {
	cheapURL, dearURL string
	open              func(k kind, cheap, dear http.Handler) http.Handler
	hasOneOrigin      bool
	// needsNames reports whether the seller must name the two handlers, because nothing else
	// tells them apart behind this kind of router.
	needsNames func(k kind) bool
}

func layouts() map[string]layout {
	never := func(kind) bool { return false }
	byHosts := func(k kind, cheap, dear http.Handler) http.Handler {
		return byHost{k.open(newRoute("", "/report/{id}", cheap)), k.open(newRoute("", "/report/{id}", dear))}
	}
	return map[string]layout{
		"two routes": {
			cheapURL: "http://shop.example/cheap/7", dearURL: "http://shop.example/dear/7", needsNames: never,
			open: func(k kind, cheap, dear http.Handler) http.Handler {
				return k.open(newRoute("", "/cheap/{id}", cheap), newRoute("", "/dear/{id}", dear))
			},
		},
		"two groups": {
			cheapURL: "http://shop.example/cheap/report/7", dearURL: "http://shop.example/dear/report/7",
			needsNames: func(k kind) bool { return k.dropsPrefix },
			open: func(k kind, cheap, dear http.Handler) http.Handler {
				return k.open(newRoute("/cheap", "/report/{id}", cheap), newRoute("/dear", "/report/{id}", dear))
			},
		},
		"two hosts": {
			cheapURL: "http://cheap.example/report/7", dearURL: "http://dear.example/report/7", needsNames: never, open: byHosts,
		},
		// If the router sets a pattern, both handlers have the same one, and need names. If it
		// sets none, the seller tells the handlers apart by their prices.
		"two hosts of one origin": {
			cheapURL: "http://cheap.example/report/7", dearURL: "http://dear.example/report/7", hasOneOrigin: true,
			needsNames: func(k kind) bool { return k.setsPattern }, open: byHosts,
		},
	}
}

// newRoute returns the route of a handler for GET requests.
func newRoute(group, path string, h http.Handler) route {
	return route{http.MethodGet, group, path, h}
}

// byHost passes requests for dear.example to the handler dear, and all others to the handler
// cheap.
type byHost struct{ cheap, dear http.Handler }

// ServeHTTP implements http.Handler.
func (b byHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Host == "dear.example" {
		b.dear.ServeHTTP(w, r)
		return
	}
	b.cheap.ServeHTTP(w, r)
}

// shop is a program that sells something cheap and something expensive in a market.
type shop struct {
	*market
	layout
	cheapHandler, dearHandler countingHandler
}

// openShop opens a shop behind a kind of router. If hasNames is true, each handler has a name.
// Otherwise the seller must tell the handlers apart without names.
func (l layout) openShop(t *testing.T, k kind, hasNames bool) *shop {
	t.Helper()
	s := &shop{market: openMarket(t), layout: l}
	s.cheapHandler.answer, s.dearHandler.answer = "cheap", "dear"
	seller := s.seller(func(c *x402http.Config) {
		if l.hasOneOrigin {
			c.OtherOrigins = nil
		}
	})
	var cheapOptions, dearOptions []x402http.Option
	if hasNames {
		cheapOptions, dearOptions = []x402http.Option{x402http.Named("cheap")}, []x402http.Option{x402http.Named("dear")}
	}
	s.serve(l.open(k, seller.Sell("0.01", &s.cheapHandler, cheapOptions...), seller.Sell("5.00", &s.dearHandler, dearOptions...)))
	return s
}

// everyLayout runs a test for every router and layout.
func everyLayout(t *testing.T, test func(t *testing.T, k kind, l layout)) {
	for router, k := range kinds() {
		for name, l := range layouts() {
			t.Run(router+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, k, l)
			})
		}
	}
}

// TestCheapForDear checks that a payment of a cent for the cheap handler never pays for the
// expensive one. This must hold whether the answer of the cheap handler was given or is still
// owed. The expensive handler must sell at its own price, and the cheap one must still give the
// answer that it owes. The test runs with named handlers and, if the router tells the endpoints
// apart, also without names. If a handler has neither a name nor a pattern, the log must ask
// for a name.
func TestCheapForDear(t *testing.T) {
	t.Parallel()
	everyLayout(t, func(t *testing.T, k kind, l layout) {
		for naming, named := range map[string]bool{"named": true, "without names": false} {
			if !named && l.needsNames(k) {
				continue // TestSameIdentity tests this case
			}
			for what, owed := range map[string]bool{"answered": false, "owed": true} {
				t.Run(naming+", "+what, func(t *testing.T) {
					t.Parallel()
					s := l.openShop(t, k, named)
					s.trade(owed)
					warned := s.countInLog("x402http.Named names it")
					if warns := !named && !k.setsPattern; warned > 0 != warns {
						t.Errorf("%d warnings of a missing name, want some: %t", warned, warns)
					}
				})
			}
		}
	})
}

// trade pays for both handlers, and tries to use each payment at the other handler. If
// owesAnswer is true, the cheap handler fails at first, so its answer is owed.
func (s *shop) trade(owesAnswer bool) {
	s.Helper()
	s.cheapHandler.isUnavailable.Store(owesAnswer)
	first, cent := s.buy(s.cheapURL)
	if owesAnswer != (first.Status == http.StatusServiceUnavailable) {
		s.Errorf("the cheap one: %d %s", first.Status, first.Body)
	}
	s.advanceClock(2 * time.Second) // the client may ask for the owed answer only after a pause
	s.checkRefused("a cent at the dear one", s.get(s.dearURL, cent))
	s.dearHandler.checkRuns(s, 0)
	r, five := s.buy(s.dearURL)
	s.checkAnswer("the dear one", r, "dear", false)
	s.cheapHandler.isUnavailable.Store(false)
	s.checkAnswer("the cheap one", s.get(s.cheapURL, cent), "cheap", !owesAnswer)
	s.checkAnswer("the dear one again", s.get(s.dearURL, five), "dear", true)
	s.checkRefused("the dear one's at the cheap one", s.get(s.cheapURL, five))
	s.checkTransfers("10000", "5000000")
	s.dearHandler.checkRuns(s, 1)
}

// TestSameIdentity checks what happens if a router gives two handlers the same pattern. The
// handler that is called second answers 500, with or without a payment, and the log asks for
// names. The first handler sells as usual.
func TestSameIdentity(t *testing.T) {
	t.Parallel()
	tried := 0
	for router, k := range kinds() {
		for name, l := range layouts() {
			if !l.needsNames(k) {
				continue
			}
			tried++
			t.Run(router+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := l.openShop(t, k, false)
				s.trySecond(s.cheapURL, s.dearURL)
				s.dearHandler.checkRuns(t, 0)
			})
		}
	}
	if tried != 2+8 {
		t.Errorf("%d routers and layouts have endpoints that cannot be told apart, want those two that strip a prefix, and one origin of eight", tried)
	}
}

// trySecond buys at the first URL for a cent, and checks that the second URL does not sell.
func (s *shop) trySecond(first, second string) {
	s.Helper()
	r, cent := s.buy(first)
	s.checkAnswer("the first", r, "cheap", false)
	for i, signature := range []string{"", cent, testbed.Must(s.client.Sign(s.Context(), first))} {
		r := s.get(second, signature)
		if r.Status != http.StatusInternalServerError || !strings.Contains(string(r.Body), `"internal_error"`) || s.countInLog("x402http.Named") != i+1 {
			s.Errorf("the second: %d %s, and the log asks %d times for a name", r.Status, r.Body, s.countInLog("x402http.Named"))
		}
	}
	s.checkAnswer("the first, still", s.get(first, cent), "cheap", true)
	s.checkTransfers("10000")
}

// TestSamePrice sells two handlers with the same URL at the same price, behind routers that
// set no pattern. Nothing tells these handlers apart. The handler that is called second must
// answer 500, and the log must ask for names.
func TestSamePrice(t *testing.T) {
	t.Parallel()
	for router, k := range kinds() {
		if k.setsPattern {
			continue
		}
		t.Run(router, func(t *testing.T) {
			t.Parallel()
			s := &shop{market: openMarket(t), layout: layouts()["two hosts of one origin"]}
			s.cheapHandler.answer, s.dearHandler.answer = "cheap", "other"
			seller := s.seller(func(c *x402http.Config) { c.OtherOrigins = nil })
			s.serve(s.open(k, seller.Sell("0.01", &s.cheapHandler), seller.Sell("0.01", &s.dearHandler)))
			r, cent := s.buy(s.cheapURL)
			s.checkAnswer("the first", r, "cheap", false)
			if r := s.get(s.dearURL, cent); r.Status != http.StatusInternalServerError || s.countInLog("give each its own name with x402http.Named") != 1 {
				t.Errorf("the other one: %d %s", r.Status, r.Body)
			}
			s.dearHandler.checkRuns(t, 0)
			s.checkTransfers("10000")
		})
	}
}

// TestEchoHosts checks handlers with the same path on two hosts of one echo instance, which
// has a router for each host.
func TestEchoHosts(t *testing.T) {
	t.Parallel()
	for mount, in := range map[string]func(http.Handler) echo.HandlerFunc{"by WrapHandler": echo.WrapHandler, "with the pattern": inEcho} {
		t.Run(mount, func(t *testing.T) {
			t.Parallel()
			hosts := layouts()["two hosts"]
			hosts.open = func(_ kind, cheap, dear http.Handler) http.Handler {
				e := echo.New()
				e.Host("cheap.example").GET("/report/:id", in(cheap))
				e.Host("dear.example").GET("/report/:id", in(dear))
				return e
			}
			hosts.openShop(t, kind{}, false).trade(true)
		})
	}
}
