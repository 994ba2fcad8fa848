package bill

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

const (
	// MaxKeys is the size limit of a DID document, in bytes. A larger one is refused.
	MaxKeys   = 64 << 10
	keysLimit = 30 * time.Second // the time limit for reading a DID document
)

// ErrUnchecked means that a receipt could not be checked. Either the public keys of its signer
// could not be read, or they could be read only over http, where an attacker could replace
// them.
var ErrUnchecked = errors.New("the keys of the service cannot be read")

// Delivery describes a request, its payment and its answer. A signed receipt is checked against
// them.
type Delivery struct {
	// RequestURL is the URL of the request, with its query.
	RequestURL *url.URL
	// Resource is the URL of the resource in the offer. The receipt must name that URL. If
	// Resource is empty, the receipt must name RequestURL, with or without the query.
	Resource string
	// AnyRequest means that it is unknown how the seller normalizes a request. The request in
	// the receipt is then not compared.
	AnyRequest bool
	Settled    x402.SettleResponse
	Body       []byte
	// Transport is used for reading the keys of the service; nil means http.DefaultTransport.
	Transport http.RoundTripper
}

// Verify checks that a key of the service signed a receipt for the request, the payment and
// the answer in d. The receipt is a JWS. Verify returns its content and the id of the key.
func (d Delivery) Verify(ctx context.Context, jws string) (receipt.Statement, string, error) {
	asked := *d.RequestURL
	s, kid, err := receipt.Verify(jws, func(kid string) (ed25519.PublicKey, error) {
		asked = useHostOfKey(asked, kid)
		return d.readKey(ctx, &asked, kid)
	})
	switch {
	case err != nil:
		return s, kid, err
	case !receipt.Authorizes(kid, s):
		return s, kid, fmt.Errorf("the key %q is not allowed to sign for %q", kid, s.ResourceURL)
	case !d.matchesResource(asked, s.ResourceURL):
		return s, kid, fmt.Errorf("it is for %q, which was not asked", s.ResourceURL)
	case s.Request != "" && !d.AnyRequest && s.Request != Question(&asked):
		return s, kid, fmt.Errorf("it is for the question %q, but the question was %s", s.Request, Question(&asked))
	case s.Transaction != "" && !strings.EqualFold(s.Transaction, d.Settled.Transaction):
		return s, kid, fmt.Errorf("it is for the transaction %q, but the answer names %q", s.Transaction, d.Settled.Transaction)
	case !strings.EqualFold(s.Payer, d.Settled.Payer) || s.Network != d.Settled.Network:
		return s, kid, fmt.Errorf("it is for the payer %q on %q, but the answer names %q on %q", s.Payer, s.Network, d.Settled.Payer, d.Settled.Network)
	case s.ResponseHash != "" && !s.Covers(d.Body):
		return s, kid, fmt.Errorf("it is for another answer: these %d bytes have the SHA-256 %s", len(d.Body), receipt.HashOf(d.Body))
	}
	return s, kid, nil
}

// matchesResource reports whether a receipt for the given resource can belong to a request for
// the given URL. If the offer named a resource, the receipt must be for exactly that resource.
// Otherwise the receipt must be for the requested URL, with or without the query.
func (d Delivery) matchesResource(asked url.URL, resource string) bool {
	if d.Resource != "" {
		return resource == d.Resource
	}
	named := asked.Scheme + "://" + strings.ToLower(asked.Host) + asked.EscapedPath()
	return resource == named || resource == named+"?"+asked.RawQuery
}

// Question returns the text with which a receipt describes the request for a URL. If the URL is
// that of an operation of this product, the parameters are normalized. If the URL belongs to
// another service, the parameters are only sorted by name.
func Question(asked *url.URL) string {
	sent := asked.Query()
	for _, op := range catalog.All() {
		if op.Path != asked.Path {
			continue
		}
		for name := range sent {
			sent.Set(name, strings.ToUpper(sent.Get(name))) // a client may send record types in any letter case
		}
		if name, err := guard.Domain(asked.Query().Get("domain"), guard.DNSName); err == nil {
			sent.Set("domain", name)
		}
		return op.Request(sent)
	}
	name := http.MethodGet + " " + asked.Scheme + "://" + strings.ToLower(asked.Host) + asked.EscapedPath()
	if len(sent) == 0 {
		return name
	}
	return name + "?" + sent.Encode()
}

// useHostOfKey compares the host in the URL of a request with the host in a key id. If both
// hosts are names of this machine, useHostOfKey returns the URL with the host of the key id.
// Otherwise it returns the URL unchanged. The reason: the key id of the service that "make
// run" starts has the host 127.0.0.1, but clients can also reach that service as localhost.
func useHostOfKey(asked url.URL, kid string) url.URL {
	for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
		here := asked
		here.Host = strings.TrimSuffix(name+":"+asked.Port(), ":")
		if IsLoopback(&asked) && strings.HasPrefix(kid, receipt.DID(here.Host)+"#") {
			return here
		}
	}
	return asked
}

// readKey reads a key from the DID document of the service that was asked. It reads the
// document over https. Over http it reads only a document on this machine, because the service
// that "make run" starts has no certificate.
func (d Delivery) readKey(ctx context.Context, asked *url.URL, kid string) (ed25519.PublicKey, error) {
	if !strings.HasPrefix(kid, receipt.DID(strings.ToLower(asked.Host))+"#") {
		return nil, fmt.Errorf("it is signed by %q, and %q was asked", kid, asked.Host)
	}
	if asked.Scheme != "https" && !IsLoopback(asked) {
		return nil, fmt.Errorf("%w: over http, anybody on the path could substitute others", ErrUnchecked)
	}
	ctx, cancel := context.WithTimeout(ctx, keysLimit)
	defer cancel()
	transport := d.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	r, err := Client(nil, transport).Get(ctx, asked.Scheme+"://"+asked.Host+receipt.Path, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnchecked, err)
	case r.Status != http.StatusOK: // this includes redirects
		return nil, fmt.Errorf("%w: %s answers %d", ErrUnchecked, receipt.Path, r.Status)
	case len(r.Body) > MaxKeys:
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrUnchecked, receipt.Path, MaxKeys)
	}
	return receipt.FindKey(r.Body, kid)
}

// IsLoopback reports whether the host of a URL is this machine: localhost or a loopback
// address.
func IsLoopback(u *url.URL) bool {
	if u.Hostname() == "localhost" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}
