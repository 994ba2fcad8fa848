package registry

import (
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

// check refuses a query that ParseQuery did not make.
func check(q Query) error {
	name, err := guard.Domain(q.Domain, guard.Hostname)
	if err != nil {
		return err
	}
	if name != q.Domain {
		return fault.New(fault.InvalidDomain, nil)
	}
	return nil
}

// registrable cuts a name to what a registry registers: one label below its
// suffix in the ICANN section of the public suffix list. A name that is such a
// suffix stays as it is.
//
// Suffixes of the private section (github.io, uk.com) are domains that somebody
// registered, so they are passed by.
func registrable(name string) string {
	suffix, icann := publicsuffix.PublicSuffix(name)
	for !icann {
		_, up, more := strings.Cut(suffix, ".")
		if !more {
			break // a top-level domain that the list does not know
		}
		suffix, icann = publicsuffix.PublicSuffix(up)
	}
	rest, cut := strings.CutSuffix(name, "."+suffix)
	if !cut {
		return name
	}
	return rest[strings.LastIndexByte(rest, '.')+1:] + "." + suffix
}
