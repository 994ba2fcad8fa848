package x402http

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// errSameName is the error for two handlers that cannot be told apart.
var errSameName = errors.New("two handlers that are sold cannot be told apart: give each its own name with x402http.Named, or add the hosts that they are for to Config.OtherOrigins")

// endpoint returns the name of the endpoint that a request is for: its method, origin and
// route. A payment is answered only at the endpoint with which the ledger has recorded it.
func (x *sale) endpoint(r *http.Request) string {
	if x.overrides.Endpoint != "" {
		return x.overrides.Endpoint
	}
	return x.method() + " " + x.seller.config.OriginOf(r) + " " + x.route(r)
}

// route returns the name of the handler or, if it has none, the pattern of the request without
// the method. The route is empty if there is no pattern either.
func (x *sale) route(r *http.Request) string {
	if x.name != "" {
		return x.name
	}
	return r.Pattern[strings.LastIndexAny(r.Pattern, " \t")+1:]
}

// logName returns the name of the handler for logs.
func (x *sale) logName(r *http.Request) string { return cmp.Or(x.route(r), "unnamed") }

// checkReady returns an error in two cases. First, a request without a payment announces a
// body that is too long: the client gets the error before it pays. Second, another handler
// already sells under the key of this one (see routes).
func (x *sale) checkReady(r *http.Request) error {
	if x.maxBody > 0 && r.ContentLength > x.maxBody && r.Header.Get(x402.HeaderSignature) == "" {
		return x.tooLargeFault()
	}
	switch {
	case x.overrides.Endpoint != "":
		return nil
	case x.route(r) != "":
		return x.seller.routes.register(x.endpoint(r), x)
	}
	x.warnOnce.Do(func() {
		x.seller.config.Log.WarnContext(r.Context(), "a handler that is sold has neither a pattern nor a name: "+
			"its price is a part of what is bought, so that a change of price makes another purchase. x402http.Named names it.",
			"path", r.URL.Path)
	})
	return x.seller.unnamedRoutes.register(x.method()+" "+x.seller.urlOf(r)+" for "+x.amount, x)
}

// routes are the handlers of a seller, by endpoint. If a handler has neither a name nor a
// pattern, its key is the method, the URL and the price of a request instead. The zero value is
// empty.
type routes struct {
	mu    sync.Mutex
	sales map[string]*sale
}

// mostRoutes limits the memory of routes. Further endpoints are not recorded, so register does
// not notice if two handlers sell at one of them.
const mostRoutes = 4096

// register records that an endpoint belongs to a handler. It returns an error if the endpoint
// belongs to another handler.
func (t *routes) register(endpoint string, x *sale) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	other := t.sales[endpoint]
	switch {
	case other == x:
		return nil
	case other != nil:
		return fmt.Errorf("%w (%s)", errSameName, endpoint)
	case len(t.sales) >= mostRoutes:
		return nil
	case t.sales == nil:
		t.sales = map[string]*sale{}
	}
	t.sales[endpoint] = x
	return nil
}
