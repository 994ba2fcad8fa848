package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	// firstAnswer is the time limit for the first request, before anything is signed. For
	// later requests it limits only the time to connect.
	firstAnswer = 15 * time.Second
	// localAddr is the address that "make run" listens on, unless LOCAL_ADDR is set.
	localAddr = "127.0.0.1:8402"
	pingPath  = "/v1/tools/ping"
)

// localPing returns the URL of ping at the service that "make run" starts. Ping is the operation
// for payment smoke tests.
func localPing(configured string) (string, error) {
	host, port, err := net.SplitHostPort(cmp.Or(configured, localAddr))
	if err != nil || port == "0" {
		return "", usageError("LOCAL_ADDR=%q is not where the service is. The first line that the service prints says where: URL=http://...%s", configured, pingPath)
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + pingPath, nil
}

// parseTarget parses and checks the URL before any request is made. It replaces each space by
// %20, because a space would end the URL in the request.
func parseTarget(s string) (*url.URL, error) {
	s = strings.ReplaceAll(s, " ", "%20")
	u, err := url.Parse(s)
	switch web := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""; {
	case web && u.User != nil:
		return nil, usageError("URL has a user name or a password in it, and x402 needs neither")
	case web:
		if n, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16); err != nil || n == 0 {
			return nil, usageError("URL has the port %q; ports are 1 to 65535, and make run uses 8402", u.Port())
		}
		return u, nil
	case strings.HasPrefix(s, "/"):
		return nil, usageError("URL=%q has no host. For the service of make run:\n  make pay URL=%s", s, quoteForShell("http://"+localAddr+s))
	case !strings.Contains(s, "://") && s != "":
		return nil, usageError("URL=%q does not begin with http:// or https://. Perhaps:\n  make pay URL=%s", s, quoteForShell("http://"+s))
	}
	return nil, usageError("URL=%q is not the address of a service. One looks like http://%s%s", s, localAddr, pingPath)
}

// quoteForShell returns text as a quoted word for a shell.
func quoteForShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// dialer is a function that connects to an address.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport returns the transport for requests. The transport gives up if it cannot connect
// to a host within firstAnswer.
func newTransport(dial dialer) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: firstAnswer,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			limited, cancel := context.WithTimeout(ctx, firstAnswer)
			defer cancel()
			return dial(limited, network, address)
		},
	}
}

// isUnconnected reports whether a request failed because no connection was made, so nothing was
// sent.
func isUnconnected(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && op.Op == "dial"
}

// unreachableError returns an error that says why a request got no answer, and what to do.
func unreachableError(u *url.URL, err error) error {
	name, unnamed := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("stopped before anything was signed")
	case errors.Is(err, syscall.ECONNREFUSED) && bill.IsLoopback(u):
		where := ""
		if u.Host != localAddr {
			where = "LOCAL_ADDR=" + u.Host + " "
		}
		return newSafeError("nothing is listening on %s. Start the service there with:\n  %smake run", u.Host, where)
	case errors.Is(err, syscall.ECONNREFUSED):
		return newSafeError("nothing is listening on %s: is the port right?", u.Host)
	case unnamed && name.IsNotFound:
		return newSafeError("there is no host %s: is the name in URL right?", u.Hostname())
	case errors.Is(err, http.ErrSchemeMismatch):
		return newSafeError("%s speaks http, not https: try URL=http://...", u.Host)
	case isNetwork && network.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return newSafeError("%s does not answer within %s: is the address right, and is there a network?", u.Host, firstAnswer)
	case unnamed, isUnconnected(err):
		return newSafeError("%s\n%s cannot be reached: is there a network?", err, u.Host)
	}
	return newSafeError("%s\nIs %s a service that speaks HTTP? make run starts one on http://%s", err, u.Host, localAddr)
}

// notForSaleError returns an error for a first answer that offers no way to pay. The error says
// what to do.
func notForSaleError(u *url.URL, r x402test.Reply) error {
	said := formatSafe("%s has no price: expected 402 Payment Required, got %d", u, r.Status)
	f := parseBodyError(r.Body)
	switch {
	case r.Status >= 200 && r.Status < 300:
		return newSafeError("%s.\nIt is free. To read it: curl %s", safeText(said), quoteForShell(u.String()))
	case r.Status >= 300 && r.Status < 400:
		return newSafeError("%s.\nIt redirects to %q", safeText(said), r.Header.Get("Location"))
	case f.Code != "":
		said += formatSafe(":\n%s: %s", f.Code, f.Message)
	case len(r.Body) > 0:
		said += ":\n" + untrusted.Lines(string(formatBody(r.Body)))
	default:
		said += "."
	}
	switch missing := r.Status == http.StatusNotFound; {
	case f.Code == "unknown_path":
		said += formatSafe("\nWhat is sold there, and for how much: %s://%s/v1/catalog", u.Scheme, u.Host)
	case missing && bill.IsLoopback(u) && u.Scheme == "http":
		said += "\nIs the port in URL right? make run prints it; the port after it is the play-money facilitator's."
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil && port > 1 {
			before := *u
			before.Host = net.JoinHostPort(u.Hostname(), strconv.FormatUint(port-1, 10))
			said += formatSafe(" Perhaps:\n  make pay URL=%s", quoteForShell(before.String()))
		}
	case missing:
		said += "\nIs the path in URL right?"
	case r.RetryAfter() > 0:
		said += formatSafe("\nNothing was signed. Trying again in %s.", r.RetryAfter())
	}
	return errors.New(said)
}
