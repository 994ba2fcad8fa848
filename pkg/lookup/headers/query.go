package headers

import (
	"net/url"

	"github.com/hostfacts/hostfacts/pkg/guard"
)

// Query is a normalised question.
type Query struct {
	Domain string // as guard.Domain returns it
}

// ParseQuery reads domain of spec §4.5. It returns invalid_domain. Other
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
