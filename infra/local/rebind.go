package main

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// onlyFromHere protects the MCP tools and the play wallet of a service that listens on this
// machine only. It protects them from web pages of other sites. Such a page can make its own
// host name resolve to a loopback address. A browser then treats the service as part of the
// page's site (Model Context Protocol, transports, security). Therefore the header Host must
// name this machine or the host of the base URL, and so must the header Origin if there is
// one. If other machines can reach the service, onlyFromHere checks nothing.
func onlyFromHere(listening net.Addr, baseURL string, next http.Handler) http.Handler {
	if host, _, err := net.SplitHostPort(listening.String()); err != nil || !isLoopback(host) {
		return next
	}
	ownHost := ""
	if u, err := url.Parse(baseURL); err == nil {
		ownHost = u.Hostname()
	}
	isOwnHost := func(host string) bool { return isLoopback(host) || ownHost != "" && strings.EqualFold(host, ownHost) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != catalog.PathMCP && r.URL.Path != playWalletPath {
			next.ServeHTTP(w, r)
			return
		}
		host := url.URL{Host: r.Host} // the method Hostname removes the port
		isFromHere := isOwnHost(host.Hostname())
		for _, origin := range r.Header.Values("Origin") {
			u, err := url.Parse(origin)
			isFromHere = isFromHere && err == nil && (u.Scheme == "http" || u.Scheme == "https") && isOwnHost(u.Hostname())
		}
		if !isFromHere {
			http.Error(w, "this service answers tool calls and signs with its play wallet from this machine only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
