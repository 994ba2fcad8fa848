package simnet

import (
	"crypto/x509"
	"math/big"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// authority issues the certificates of this internet.
type authority = testbed.Authority

// edit changes a certificate before it is signed.
type edit = func(*x509.Certificate)

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = fixed("2020-01-01T00:00:00Z"), fixed("2020-12-31T23:59:59Z")
}

func notYetValid(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = fixed("2090-01-01T00:00:00Z"), fixed("2090-12-31T23:59:59Z")
}

func named(names ...string) edit { return func(c *x509.Certificate) { c.DNSNames = names } }

func serial(n int64) edit { return func(c *x509.Certificate) { c.SerialNumber = big.NewInt(n) } }

func fixed(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err) // a constant of this file
	}
	return t
}
