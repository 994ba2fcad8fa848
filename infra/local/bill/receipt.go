package main

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
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	maxKeys   = 64 << 10         // bytes of a DID document
	keysLimit = 30 * time.Second // for reading one
)

// errUnchecked says that it is not known whether a receipt holds: the key of
// the signer could not be read.
var errUnchecked = errors.New("the keys of the service cannot be read")

// receipt says in one line whether the signed receipt of an answer holds. One that
// does not is a warning: the answer is shown all the same.
func (p *payer) receipt(ctx context.Context, r x402test.Reply) {
	settled, err := r.Receipt()
	if err != nil && r.Header.Get(x402.HeaderResponse) != "" {
		p.say("receipt: none that can be read came with this answer\n")
		return
	}
	signed := settled.Extensions.OfferReceipt.Info.Receipt
	switch {
	case !settled.Success && r.Status != http.StatusOK:
		return // nothing was paid, so there is nothing to confirm
	case signed == x402.SignedReceipt{}:
		p.say("receipt: none came with this answer\n")
		return
	case signed.Format != x402.FormatJWS:
		p.say("receipt: not checked: its format is not %s\n", x402.FormatJWS)
		return
	}
	s, kid, err := p.verified(ctx, signed.Signature, settled, r.Body)
	switch {
	case errors.Is(err, errUnchecked):
		p.say("receipt: NOT CHECKED: %s\n", err)
	case err != nil:
		p.say("receipt: DOES NOT HOLD: %s\n", err)
	case s.ResponseHash == "":
		p.say("receipt: holds for the payment, signed by %s; it does not say what was answered\n", kid)
	case s.Request == "":
		p.say("receipt: holds for these %d bytes, signed by %s; it does not say what was asked\n", len(r.Body), kid)
	default:
		p.say("receipt: holds: signed by %s at %s for these %d bytes\n", kid, time.Unix(s.IssuedAt, 0).UTC().Format(time.RFC3339), len(r.Body))
	}
}

// verified is what a receipt says, and the id of the key that signed it, when all
// of it is so: a key of the service that was asked signed it, for this question, this
// payment and these bytes.
func (p *payer) verified(ctx context.Context, jws string, settled x402.SettleResponse, body []byte) (receipt.Statement, string, error) {
	asked := *p.url
	s, kid, err := receipt.Verify(jws, func(kid string) (ed25519.PublicKey, error) {
		asked = namedHere(asked, kid)
		return keyOf(ctx, &asked, kid)
	})
	resource := asked.Scheme + "://" + strings.ToLower(asked.Host) + asked.EscapedPath() // the query may be left out
	switch {
	case err != nil:
		return s, kid, err
	case !receipt.Authorizes(kid, s):
		return s, kid, fmt.Errorf("the key %q may not speak for %q", kid, s.ResourceURL)
	case s.ResourceURL != resource && s.ResourceURL != resource+"?"+asked.RawQuery:
		return s, kid, fmt.Errorf("it is for %q, which was not asked", s.ResourceURL)
	case s.Request != "" && s.Request != question(&asked):
		return s, kid, fmt.Errorf("it is for the question %q, and this was asked: %s", s.Request, question(&asked))
	case s.Transaction != "" && !strings.EqualFold(s.Transaction, settled.Transaction):
		return s, kid, fmt.Errorf("it is for the transaction %q, and the answer names %q", s.Transaction, settled.Transaction)
	case !strings.EqualFold(s.Payer, settled.Payer) || s.Network != settled.Network:
		return s, kid, fmt.Errorf("it is for the payer %q on %q, and the answer names %q on %q", s.Payer, s.Network, settled.Payer, settled.Network)
	case s.ResponseHash != "" && !s.Covers(body):
		return s, kid, fmt.Errorf("it is for another answer: these %d bytes have the SHA-256 %s", len(body), receipt.HashOf(body))
	}
	return s, kid, nil
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
	name := http.MethodGet + " " + asked.Scheme + "://" + strings.ToLower(asked.Host) + asked.EscapedPath()
	if len(sent) == 0 {
		return name
	}
	return name + "?" + sent.Encode()
}

// namedHere returns an address of this machine under the name that a key has for it: make run
// calls itself 127.0.0.1, and can be asked as localhost.
func namedHere(asked url.URL, kid string) url.URL {
	for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
		here := asked
		here.Host = strings.TrimSuffix(name+":"+asked.Port(), ":")
		if loopback(&asked) && strings.HasPrefix(kid, receipt.DID(here.Host)+"#") {
			return here
		}
	}
	return asked
}

// keyOf reads a key from the DID document of the service that was asked. A
// did:web document is read over https; over http only on this machine, where
// the local runner has no certificate.
func keyOf(ctx context.Context, asked *url.URL, kid string) (ed25519.PublicKey, error) {
	if !strings.HasPrefix(kid, receipt.DID(strings.ToLower(asked.Host))+"#") {
		return nil, fmt.Errorf("it is signed by %q, and %q was asked", kid, asked.Host)
	}
	if asked.Scheme != "https" && !loopback(asked) {
		return nil, fmt.Errorf("%w: over http anybody on the way could give others", errUnchecked)
	}
	ctx, cancel := context.WithTimeout(ctx, keysLimit)
	defer cancel()
	r, err := client(nil, http.DefaultTransport).Get(ctx, asked.Scheme+"://"+asked.Host+receipt.Path, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnchecked, err)
	case r.Status != http.StatusOK: // a redirect among them
		return nil, fmt.Errorf("%w: %s answers %d", errUnchecked, receipt.Path, r.Status)
	case len(r.Body) > maxKeys:
		return nil, fmt.Errorf("%w: %s has more than %d bytes", errUnchecked, receipt.Path, maxKeys)
	}
	return receipt.FindKey(r.Body, kid)
}

// loopback says whether an address is of this machine.
func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
