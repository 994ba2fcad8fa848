package x402http

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Named names a handler among those that a program sells. Payments are recorded with the name,
// so that a handler which moves to another pattern, or is sold by a router that tells no
// pattern, still answers what was paid for it. Without a name the pattern of http.ServeMux
// stands for it.
func Named(name string) Option { return func(s *sale) { s.name = name } }

// errSameName says that two handlers cannot be told apart.
var errSameName = errors.New("two handlers that are sold have the same name: give each its own with x402http.Named")

// endpoint names where a request is sold: its method, origin and route. A payment is answered
// at the endpoint that admitted it, and nowhere else.
func (x *sale) endpoint(r *http.Request) string {
	return http.MethodGet + " " + x.seller.origin(r) + " " + x.route(r)
}

// route is the name of the handler or, if it has none, the path of the pattern that it is
// registered with; empty where there is neither.
func (x *sale) route(r *http.Request) string {
	if x.name != "" {
		return x.name
	}
	_, path, found := strings.Cut(r.Pattern[strings.LastIndexAny(r.Pattern, " \t")+1:], "/")
	if !found {
		return ""
	}
	return "/" + path
}

// ready says whether the handler can be told from the others that are sold.
func (x *sale) ready(r *http.Request) error {
	if x.route(r) != "" {
		return x.seller.routes.take(x.endpoint(r), x)
	}
	x.unnamed.Do(func() {
		x.seller.config.Front.Log.WarnContext(r.Context(), "a handler that is sold has neither a pattern nor a name: "+
			"its price is a part of what is bought, so that a change of price makes another purchase. x402http.Named names it.",
			"path", r.URL.Path)
	})
	return nil
}

// routes are the handlers of a seller by their endpoints. The zero value is empty.
type routes struct {
	mu sync.Mutex
	by map[string]*sale
}

// mostRoutes bounds the memory of routes: without Config.Origin a stranger can send requests
// for any host.
const mostRoutes = 4096

// take gives an endpoint to a handler, unless another one has it.
func (t *routes) take(endpoint string, x *sale) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	other := t.by[endpoint]
	switch {
	case other == x:
		return nil
	case other != nil:
		return fmt.Errorf("%w (%s)", errSameName, endpoint)
	case len(t.by) >= mostRoutes:
		return nil
	case t.by == nil:
		t.by = map[string]*sale{}
	}
	t.by[endpoint] = x
	return nil
}
