package registry

import (
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// check refuses a query that ParseQuery did not make.
func check(q Query) error {
	name, err := guard.Domain(q.Domain, guard.Hostname)
	if err != nil {
		return err
	}
	if name != q.Domain {
		return lookup.Fault(lookup.InvalidDomain, nil)
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

// webHostOf is the suffix of several labels whose own web host a registrable name
// is: gov.uk for www.gov.uk. The public suffix list takes such a name for one that
// somebody could register there, and no registry registers it: where it has no
// registration, that of the suffix is the name's, if there is one. Other names below
// such a suffix are not asked for so. They can be free, as those below co.uk, or
// registered with somebody else, as those below ac.uk, while the registry has an
// object for the suffix.
func webHostOf(registrable string) (suffix string, ok bool) {
	suffix, ok = strings.CutPrefix(registrable, "www.")
	return suffix, ok && strings.Contains(suffix, ".")
}
