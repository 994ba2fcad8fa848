package service_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// A parameter that is misspelt, or called as another operation calls it, is named before
// anything is charged, and on no operation that could not say so. Without a payment, the
// answer is the price.
func TestSlips(t *testing.T) {
	s := newShop(t)
	paths := map[string]string{}
	for _, op := range catalog.All() {
		paths[op.Slug] = op.Path
	}
	for _, c := range []struct{ op, query, code, meant string }{
		{"dns", "tpye=MX", "invalid_type", "type"}, {"dns", "typ=MX", "invalid_type", "type"}, {"dns", "types=MX", "invalid_type", "type"},
		{"dns", "tyqe=MX", "invalid_type", "type"}, {"dns", "TYPE=MX", "invalid_type", "type"}, {"dns", "dns_type=MX", "invalid_type", "type"},
		{"dns", "typ%C3%A9", "invalid_type", "type"}, {"dns", "%2574ype", "", ""}, {"dns", "domain%20=x", "invalid_domain", "domain"},
		{"dns", "type=A&typE=MX", "invalid_type", "type"}, {"dns", "port=80", "", ""}, {"dns", "tp=MX", "", ""}, {"dns", "epyt=MX", "", ""},
		{"dns", "utm_source=x&_=1&t=2&q=%zz&=3", "", ""}, {"dns", "name=example.org", "", ""},
		{"host-intel", "type=MX", "invalid_type", "dns_type"}, {"host-intel", "dnstype=MX", "invalid_type", "dns_type"},
		{"host-intel", "dns-type=MX", "invalid_type", "dns_type"}, {"host-intel", "dsn_type=MX", "invalid_type", "dns_type"},
		{"ssl-check", "prot=8443", "invalid_port", "port"}, {"ssl-check", "ports=80", "invalid_port", "port"}, {"ssl-check", "type=A", "", ""},
		{"whois", "domian=a", "invalid_domain", "domain"}, {"headers", "domains=a", "invalid_domain", "domain"},
		{"uptime-check", "doman=a", "invalid_domain", "domain"}, {"resolve-redirect", "host=a&typo=b", "", ""},
		{"ping", "prob=1", "", ""}, {"ping", "domain=a&type=b", "", ""},
	} {
		path := paths[c.op] + "?" + c.query
		if c.op != "ping" {
			path += "&domain=localhost" // a fault of its own, which comes last
		}
		if free := s.get(path, ""); free.Status != 402 {
			t.Errorf("%s without a payment: %d %s", path, free.Status, free.Body)
		}
		got := s.get(path, s.sign(path))
		slip := strings.Contains(string(got.Body), "There is no parameter")
		if slip != (c.code != "") || slip && (codeOf(got) != c.code || got.Status != 400 ||
			!strings.Contains(string(got.Body), "it is called "+c.meant+".") || !strings.Contains(string(got.Body), `"charged":false`)) {
			t.Errorf("%s: %d %s, want %q %q", path, got.Status, got.Body, c.code, c.meant)
		}
	}
	s.settled(2) // of ping
}

// One edit, and no other name, is a slip.
func TestEdits(t *testing.T) {
	t.Parallel()
	const name, letters = "type", "typex"
	op := catalog.Operation{Params: []catalog.Param{{Name: name}}, Errors: []fault.Code{lookup.InvalidType}}
	edits := map[string]bool{}
	for i := range len(name) + 1 {
		head, tail := name[:i], name[i:]
		for _, c := range letters {
			edits[head+string(c)+tail] = true
			if tail != "" {
				edits[head+string(c)+tail[1:]], edits[head+tail[1:]] = true, true
			}
		}
		if len(tail) > 1 {
			edits[head+tail[1:2]+tail[:1]+tail[2:]] = true
		}
	}
	delete(edits, name)
	for names, n := []string{""}, 0; n < 7; n++ {
		var longer []string
		for _, sent := range names {
			if refused := service.Slipped(op, map[string][]string{sent: nil}) != nil; refused != edits[sent] {
				t.Errorf("%s is refused: %v", sent, refused)
			}
			for _, c := range letters {
				longer = append(longer, sent+string(c))
			}
		}
		names = longer
	}
}

// Every parameter but that of ping has a code for a slip in its name.
func TestSlipsOfEveryParameter(t *testing.T) {
	for _, op := range every(nil) {
		for _, p := range op.Entry().Params {
			err := service.Slipped(op.Entry(), map[string][]string{p.Name + "s": nil})
			var f *fault.Error
			if ping := op.Entry().Kind == catalog.SmokeTest; errors.As(err, &f) == ping || !ping && !op.Entry().Can(f.Code) {
				t.Errorf("%s of %s: %v", p.Name, op.Entry().Slug, err)
			}
		}
	}
}

// signer signs offers and receipts, as long as real ones.
type signer struct{ *receipt.Signer }

func newSigner() signer {
	public, private, _ := ed25519.GenerateKey(rand.Reader) // never fails
	return signer{must(receipt.NewSigner(private, []ed25519.PublicKey{public}))}
}
func (s signer) Sign(_ context.Context, d receipt.Delivery) (string, error) { return s.Signer.Sign(d) }
