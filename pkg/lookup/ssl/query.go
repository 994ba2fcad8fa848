package ssl

import (
	"net/url"
	"strconv"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

// Port is the only port that is inspected (spec §8).
const Port = 443

// Query is a normalised question; the port is always Port.
type Query struct {
	Domain string // as guard.Domain returns it
}

// ParseQuery reads domain and port of spec §4.3. It returns invalid_domain or
// invalid_port. Other parameters are ignored.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.Hostname)
	if err != nil {
		return Query{}, err
	}
	// Spelled exactly so: a port that needs interpretation is not 443.
	if p, ok := q["port"]; ok && (len(p) != 1 || p[0] != strconv.Itoa(Port)) {
		if len(p) > 1 {
			return Query{}, fault.Newf(fault.InvalidPort, nil, "port is repeated: leave it out or pass 443 once.")
		}
		return Query{}, fault.New(fault.InvalidPort, nil)
	}
	return Query{Domain: domain}, nil
}

// Values are the parameters as understood, defaults filled in. Two requests
// with equal values ask the same question.
func (q Query) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "port": {strconv.Itoa(Port)}}
}
