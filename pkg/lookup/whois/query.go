// Package whois is what WHOIS Intelligence is asked and what it answers (spec
// §2.3, §4.4). How it finds out is package registry, apart from here because
// its RDAP library adds four megabytes to a binary.
package whois

import (
	"net/url"

	"github.com/hostfacts/hostfacts/pkg/guard"
)

// Query is a normalised question.
type Query struct {
	Domain string // as guard.Domain returns it for a Hostname
}

// ParseQuery reads domain of spec §4.4. It returns invalid_domain. Other
// parameters are ignored.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.Hostname)
	if err != nil {
		return Query{}, err
	}
	return Query{Domain: domain}, nil
}

// Values are the parameters as understood. Two requests with equal values ask
// the same question.
func (q Query) Values() url.Values { return url.Values{"domain": {q.Domain}} }
