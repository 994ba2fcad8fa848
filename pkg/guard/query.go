package guard

import "net/url"

// Query is the question to a tool that takes the name of a host and nothing else.
type Query struct {
	Domain string // as Domain returns it for a Hostname
}

// ParseQuery reads domain. It returns invalid_domain. Other parameters are ignored.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := DomainParam(q, Hostname)
	return Query{Domain: domain}, err
}

// Values are the parameters as understood. Two requests with equal values ask
// the same question.
func (q Query) Values() url.Values { return url.Values{"domain": {q.Domain}} }
