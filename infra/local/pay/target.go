package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	// firstAnswer is how long the first request may take: nothing is signed yet.
	firstAnswer = 15 * time.Second
	// localAddr is where make run listens unless LOCAL_ADDR says otherwise.
	localAddr = "127.0.0.1:8402"
	pingPath  = "/v1/tools/ping"
)

// localPing is the payment smoke test of the service that make run starts.
func localPing(configured string) (string, error) {
	host, port, err := net.SplitHostPort(cmp.Or(configured, localAddr))
	if err != nil || port == "0" {
		return "", typed("LOCAL_ADDR=%q does not say where the service is. Its first line does: URL=http://...%s", configured, pingPath)
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + pingPath, nil
}

// target checks an address before anything is sent there. A space would end the
// URL on the wire; a person who types one means %20.
func target(s string) (string, error) {
	s = strings.ReplaceAll(s, " ", "%20")
	u, err := url.Parse(s)
	web := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
	switch {
	case web && u.User != nil:
		return "", typed("URL has a user name or a password in it, and x402 needs neither")
	case web && !goodPort(u.Port()):
		return "", typed("URL has the port %q; ports are 1 to 65535, and make run uses 8402", u.Port())
	case web:
		return s, nil
	case strings.HasPrefix(s, "/"):
		return "", typed("URL=%s has no host. For the service of make run:\n  make pay URL=%s", printable.Quote(s, printable.Max), quoted("http://"+localAddr+printable.Text(s)))
	case !strings.Contains(s, "://") && s != "":
		return "", typed("URL=%s does not begin with http:// or https://. Perhaps:\n  make pay URL=%s", printable.Quote(s, printable.Max), quoted("http://"+printable.Text(s)))
	}
	return "", typed("URL=%s is not the address of a service. One looks like http://%s%s", printable.Quote(s, printable.Max), localAddr, pingPath)
}

// quoted is a word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func goodPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// private says whether nobody on the way can change what is said: over https, or
// on this machine.
func private(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || loopback(u.Hostname()))
}

// starts is the command that starts the service where an address of this machine says
// that it is.
func starts(host string) string {
	if host == localAddr {
		return "make run"
	}
	return "LOCAL_ADDR=" + host + " make run"
}

// unconnected says that an error came before anything was sent.
func unconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// unreachable says why there was no answer to a request, with what helps.
func unreachable(address string, err error) error {
	u, bad := url.Parse(address)
	if bad != nil {
		return said(err)
	}
	host := printable.Text(u.Host)
	var name *net.DNSError
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("stopped before anything was signed")
	case errors.Is(err, syscall.ECONNREFUSED) && loopback(u.Hostname()):
		return fmt.Errorf("nobody answers on %s. Is the service running? Its first line says where it is. This starts it there:\n  %s", host, starts(host))
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody answers on %s: is the port right?", host)
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Errorf("there is no host %s: is the name in URL right?", printable.Text(u.Hostname()))
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s speaks http and not https: is it URL=http://... ?", host)
	case errors.As(err, &network) && network.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s does not answer within %s: is the address right, and is there a network?", host, firstAnswer)
	case errors.As(err, &name), unconnected(err):
		return fmt.Errorf("%w\n%s cannot be reached: is there a network?", said(err), host)
	}
	return fmt.Errorf("%w\nIs %s a service that speaks HTTP? make run starts one on http://%s", said(err), host, localAddr)
}

// notForSale says what to do about an answer to the first request that names no
// price.
func notForSale(address string, r x402test.Reply) error {
	shown, origin := printable.Text(address), ""
	if u, err := url.Parse(address); err == nil {
		origin = printable.Text(u.Scheme + "://" + u.Host)
	}
	text := fmt.Sprintf("%s has no price: expected 402 Payment Required, got %d", shown, r.Status)
	f := failure(r.Body)
	switch {
	case r.Status >= 200 && r.Status < 300:
		return fmt.Errorf("%s.\nIt is free. To read it: curl %s", text, quoted(shown))
	case r.Status >= 300 && r.Status < 400:
		return fmt.Errorf("%s.\nIt redirects to %s", text, printable.Quote(r.Header.Get("Location"), printable.Max))
	case f.Code != "":
		text += fmt.Sprintf(":\n%s: %s", printable.Text(f.Code), printable.Text(f.Message))
	case len(r.Body) > 0:
		text += ":\n" + printable.Lines(readable(r.Body))
	default:
		text += "."
	}
	switch {
	case f.Code == "unknown_path":
		text += fmt.Sprintf("\nWhat is sold there, and for how much: %s/v1/catalog", origin)
	case r.Status == http.StatusNotFound && private(address) && strings.HasPrefix(origin, "http:"):
		text += "\nIs the port in URL right? make run says which it is; the one after it is play money's." + portBefore(address)
	case r.Status == http.StatusNotFound:
		text += "\nIs the path in URL right?"
	case r.RetryAfter() > 0:
		text += fmt.Sprintf("\nNothing was signed. Again in %s.", r.RetryAfter())
	}
	return errors.New(text)
}

// portBefore suggests the port before that of an address, which may be play money's.
func portBefore(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port < 2 {
		return ""
	}
	u.Host = net.JoinHostPort(u.Hostname(), strconv.FormatUint(port-1, 10))
	return " Perhaps:\n  make pay URL=" + quoted(printable.Text(u.String()))
}
