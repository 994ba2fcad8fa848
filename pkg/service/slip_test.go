package service_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
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

// signer signs offers and receipts, as long as real ones.
type signer struct{ *receipt.Signer }

func newSigner() signer {
	public, private, _ := ed25519.GenerateKey(rand.Reader) // never fails
	return signer{must(receipt.NewSigner(private, []ed25519.PublicKey{public}))}
}
func (s signer) Sign(_ context.Context, d receipt.Statement) (string, error) { return s.Signer.Sign(d) }
