package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	maxKeys   = 64 << 10         // bytes of a DID document that are read
	keysLimit = 30 * time.Second // for reading one
	maxReason = 300              // bytes of what is said against a receipt
)

// errUnchecked says that it is not known whether a receipt holds: the key of
// the signer could not be had.
var errUnchecked = errors.New("the keys of the service cannot be read")

// receipt says in one line what the signed receipt of an answer comes to. One that
// does not hold is a warning: the answer is what it is.
func (p *payer) receipt(ctx context.Context, r x402test.Reply) {
	settled, err := r.Receipt()
	if err != nil && r.Header.Get(x402.HeaderResponse) != "" {
		fmt.Fprintln(p.notes, "receipt: none that can be read came with this answer")
		return
	}
	signed := settled.Extensions.OfferReceipt.Info.Receipt
	switch {
	case !settled.Success && r.Status != http.StatusOK:
		return // nothing was paid, so there is nothing to confirm
	case signed == x402.SignedReceipt{}:
		fmt.Fprintln(p.notes, "receipt: none came with this answer")
		return
	case signed.Format != x402.FormatJWS:
		fmt.Fprintf(p.notes, "receipt: not checked: its format is not %s\n", x402.FormatJWS)
		return
	}
	s, kid, err := p.verified(ctx, signed.Signature, settled, r.Body)
	switch {
	case errors.Is(err, errUnchecked):
		fmt.Fprintf(p.notes, "receipt: NOT CHECKED: %s\n", reason(err))
	case err != nil:
		fmt.Fprintf(p.notes, "receipt: DOES NOT HOLD: %s\n", reason(err))
	case s.ResponseHash == "":
		fmt.Fprintf(p.notes, "receipt: holds for the payment, signed by %s; it does not say what was answered\n", printable.Text(kid))
	case s.Request == "":
		fmt.Fprintf(p.notes, "receipt: holds for these %d bytes, signed by %s; it does not say what was asked\n", len(r.Body), printable.Text(kid))
	default:
		fmt.Fprintf(p.notes, "receipt: holds: signed by %s at %s for these %d bytes\n", printable.Text(kid), time.Unix(s.IssuedAt, 0).UTC().Format(time.RFC3339), len(r.Body))
	}
}

// reason is an error that may quote the server, bounded, for a terminal.
func reason(err error) string {
	text := err.Error()
	if len(text) > maxReason {
		text = text[:maxReason] + "…"
	}
	return printable.Text(text)
}

// verified is what a receipt says, and the id of the key that signed it, when all
// of it is so: a key of the service that was asked signed it, for this question, this
// payment and these bytes.
func (p *payer) verified(ctx context.Context, jws string, settled x402.SettleResponse, body []byte) (receipt.Statement, string, error) {
	asked, err := url.Parse(p.url)
	if err != nil {
		return receipt.Statement{}, "", err
	}
	s, kid, err := receipt.Verify(jws, func(kid string) (ed25519.PublicKey, error) { return p.keyOf(ctx, asked, kid) })
	switch {
	case err != nil:
		return s, kid, err
	case !receipt.Authorizes(kid, s):
		return s, kid, fmt.Errorf("the key %q may not speak for %q", kid, s.ResourceURL)
	case !sameResource(asked, s.ResourceURL):
		return s, kid, fmt.Errorf("it is for %q, which was not asked", s.ResourceURL)
	case s.Request != "" && s.Request != question(asked):
		return s, kid, fmt.Errorf("it is for the question %q, and this was asked: %s", s.Request, question(asked))
	case s.Transaction != "" && !strings.EqualFold(s.Transaction, settled.Transaction):
		return s, kid, fmt.Errorf("it is for the transaction %q, and the answer names %q", s.Transaction, settled.Transaction)
	case !strings.EqualFold(s.Payer, settled.Payer) || s.Network != settled.Network:
		return s, kid, fmt.Errorf("it is for the payer %q on %q, and the answer names %q on %q", s.Payer, s.Network, settled.Payer, settled.Network)
	case s.ResponseHash != "" && !s.Covers(body):
		return s, kid, fmt.Errorf("it is for another answer: these %d bytes have the SHA-256 %s", len(body), receipt.HashOf(body))
	}
	return s, kid, nil
}

// sameResource says whether a receipt's resource is the address that was asked,
// with its query or without.
func sameResource(asked *url.URL, resource string) bool {
	u, err := url.Parse(resource)
	if err != nil || u.Fragment != "" || u.User != nil {
		return false
	}
	return u.Scheme == asked.Scheme && strings.EqualFold(u.Host, asked.Host) && u.EscapedPath() == asked.EscapedPath() &&
		(u.RawQuery == "" || u.RawQuery == asked.RawQuery)
}

// question is what a receipt for an address says was asked. The parameters of an
// operation of this product are as it understands them; those of another service are
// as they were sent, in the order of their names.
func question(asked *url.URL) string {
	sent := asked.Query()
	for _, op := range catalog.All() {
		if op.Path != asked.Path {
			continue
		}
		for name := range sent {
			sent.Set(name, strings.ToUpper(sent.Get(name))) // types, in either case
		}
		if name, err := guard.Domain(asked.Query().Get("domain"), guard.DNSName); err == nil {
			sent.Set("domain", name)
		}
		return op.Request(sent)
	}
	return http.MethodGet + " " + asked.EscapedPath() + "?" + sent.Encode()
}

// keyOf reads a key from the DID document of the service that was asked. A
// did:web document is read over https; over http only on this machine, where
// the local runner has no certificate.
func (p *payer) keyOf(ctx context.Context, asked *url.URL, kid string) (ed25519.PublicKey, error) {
	if !strings.HasPrefix(kid, receipt.DID(strings.ToLower(asked.Host))+"#") {
		return nil, fmt.Errorf("it is signed by %q, and %q was asked", kid, asked.Host)
	}
	if asked.Scheme != "https" && !loopback(asked.Hostname()) {
		return nil, fmt.Errorf("%w: over http anybody on the way could give others", errUnchecked)
	}
	doc, err := p.read(ctx, asked.Scheme+"://"+asked.Host+receipt.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnchecked, err)
	}
	return receipt.FindKey(doc, kid)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// read reads a small document; a redirect is not one.
func (p *payer) read(ctx context.Context, from string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keysLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/did+json, application/json")
	res, err := p.keys.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", receipt.Path, res.StatusCode)
	}
	doc, err := io.ReadAll(io.LimitReader(res.Body, maxKeys+1))
	if err == nil && len(doc) > maxKeys {
		err = fmt.Errorf("%s has more than %d bytes", receipt.Path, maxKeys)
	}
	return doc, err
}
