// Package routers_test tests handlers that are sold behind third-party routers, mounted in the
// usual ways.
package routers_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode) // otherwise gin prints its routes
	os.Exit(m.Run())
}

// route is a handler and its place in a router. The group is a prefix of the path, and may be
// empty.
type route struct {
	method, group, path string // such as GET, /v1 and /weather/{city}
	handler             http.Handler
}

// kind is a router together with a way to mount a handler in it.
type kind struct {
	open func(routes ...route) http.Handler
	// param reads a path parameter in the way that handlers of this router do. It is nil if
	// the handlers get no path parameters.
	param func(r *http.Request, name string) string
	// setsPattern is true if a sold handler gets a request that has a pattern. dropsPrefix is
	// true if this pattern lacks the prefix of the group.
	setsPattern, dropsPrefix bool
}

func kinds() map[string]kind {
	return map[string]kind{
		"ServeMux":             {open: openMux, param: (*http.Request).PathValue, setsPattern: true},
		"ServeMux, nested":     {open: openNested, param: (*http.Request).PathValue, setsPattern: true},
		"ServeMux, stripped":   {open: openStripped, param: (*http.Request).PathValue, setsPattern: true, dropsPrefix: true},
		"chi":                  {open: openChi, param: chi.URLParam, setsPattern: true},
		"chi, mounted":         {open: openMounted, param: chi.URLParam, setsPattern: true},
		"chi, stripped":        {open: openStrippedChi, param: chi.URLParam, setsPattern: true, dropsPrefix: true},
		"gin, by WrapH":        {open: openGin(gin.WrapH)},
		"gin":                  {open: openGin(inGin), param: ginParam, setsPattern: true},
		"echo, by WrapHandler": {open: openEcho(echo.WrapHandler)},
		"echo":                 {open: openEcho(inEcho), param: echoParam, setsPattern: true},
	}
}

// group is a prefix and the routes below it.
type group struct {
	prefix string
	routes []route
}

// groups sorts the routes into groups with the same prefix, and keeps their order.
func groups(routes []route) []group {
	var all []group
	index := map[string]int{}
	for _, r := range routes {
		i, known := index[r.group]
		if !known {
			i = len(all)
			index[r.group] = i
			all = append(all, group{prefix: r.group})
		}
		all[i].routes = append(all[i].routes, r)
	}
	return all
}

func openMux(routes ...route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.method+" "+r.group+r.path, r.handler)
	}
	return mux
}

// openNested returns a mux with an inner mux for each group. The inner patterns include the
// prefix.
func openNested(routes ...route) http.Handler {
	mux := http.NewServeMux()
	for _, g := range groups(routes) {
		mux.Handle(g.prefix+"/", openMux(g.routes...))
	}
	return mux
}

// openStripped returns a mux with an inner mux for each group. The inner mux does not see the
// prefix.
func openStripped(routes ...route) http.Handler {
	return openWithoutPrefix(routes, openMux)
}

// openWithoutPrefix returns a mux with an inner router for each group. The inner router does
// not see the prefix.
func openWithoutPrefix(routes []route, open func(...route) http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, g := range groups(routes) {
		for i := range g.routes {
			g.routes[i].group = ""
		}
		mux.Handle(g.prefix+"/", http.StripPrefix(g.prefix, open(g.routes...)))
	}
	return mux
}

func fillChi(to chi.Router, routes []route) {
	for _, r := range routes {
		to.Method(r.method, r.path, r.handler)
	}
}

func openChi(routes ...route) http.Handler {
	router := chi.NewRouter()
	for _, g := range groups(routes) {
		if g.prefix == "" {
			fillChi(router, g.routes)
			continue
		}
		router.Route(g.prefix, func(r chi.Router) { fillChi(r, g.routes) })
	}
	return router
}

// openMounted returns a chi router that mounts another router for each group.
func openMounted(routes ...route) http.Handler {
	router := chi.NewRouter()
	for _, g := range groups(routes) {
		sub := chi.NewRouter()
		fillChi(sub, g.routes)
		if g.prefix == "" {
			router.Mount("/", sub)
			continue
		}
		router.Mount(g.prefix, sub)
	}
	return router
}

func openStrippedChi(routes ...route) http.Handler {
	return openWithoutPrefix(routes, openChi)
}

// colonPath returns a path in the syntax of gin and echo.
func colonPath(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

func openGin(mount func(http.Handler) gin.HandlerFunc) func(...route) http.Handler {
	return func(routes ...route) http.Handler {
		engine := gin.New()
		for _, g := range groups(routes) {
			in := engine.Group(g.prefix)
			for _, r := range g.routes {
				in.Handle(r.method, colonPath(r.path), mount(r.handler))
			}
		}
		return engine
	}
}

func openEcho(mount func(http.Handler) echo.HandlerFunc) func(...route) http.Handler {
	return func(routes ...route) http.Handler {
		e := echo.New()
		for _, g := range groups(routes) {
			in := e.Group(g.prefix)
			for _, r := range g.routes {
				in.Add(r.method, colonPath(r.path), mount(r.handler))
			}
		}
		return e
	}
}

// contextKey is the key of gin's or echo's context in the context of a request.
type contextKey struct{}

// inGin mounts a handler. It passes on what gin knows of the request: the pattern, the path
// parameters in the form of net/http, and gin's own context.
func inGin(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		r := c.Request.WithContext(context.WithValue(c.Request.Context(), contextKey{}, c))
		r.Pattern = c.FullPath()
		for _, p := range c.Params {
			r.SetPathValue(p.Key, p.Value)
		}
		h.ServeHTTP(c.Writer, r)
	}
}

func ginParam(r *http.Request, name string) string {
	c, _ := r.Context().Value(contextKey{}).(*gin.Context)
	return c.Param(name)
}

// inEcho does the same as inGin, for echo.
func inEcho(h http.Handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request().WithContext(context.WithValue(c.Request().Context(), contextKey{}, c))
		r.Pattern = c.Path()
		for i, name := range c.ParamNames() {
			r.SetPathValue(name, c.ParamValues()[i])
		}
		h.ServeHTTP(c.Response(), r)
		return nil
	}
}

func echoParam(r *http.Request, name string) string {
	c, _ := r.Context().Value(contextKey{}).(echo.Context)
	return c.Param(name)
}
