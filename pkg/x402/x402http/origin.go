package x402http

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// origins are the public origins of a program.
type origins struct {
	defaultOrigin string
	byHost        map[string]string
}

// newOrigins returns the origins of a program. The error lists all origins that are wrong.
func newOrigins(first string, others []string) (origins, error) {
	if first == "" {
		return origins{}, errors.New("x402http: Origin is missing, and must be where clients reach this program, such as https://shop.example, or http://127.0.0.1:8080 for a trial")
	}
	o := origins{defaultOrigin: first, byHost: map[string]string{}}
	var wrong []error
	for _, origin := range append([]string{first}, others...) {
		hosts, err := hostsOf(origin)
		if err != nil {
			wrong = append(wrong, err)
		}
		for _, host := range hosts {
			other, taken := o.byHost[host]
			if taken {
				wrong = append(wrong, fmt.Errorf("x402http: the origins %q and %q have the same host: no request tells which of them it is for", other, origin))
				break
			}
			o.byHost[host] = origin
		}
	}
	return o, errors.Join(wrong...)
}

// hostsOf returns the Host values of requests to an origin: the origin's host and, if the
// origin has no port, the host with the default port of the scheme as well.
func hostsOf(origin string) ([]string, error) {
	wrong := fmt.Errorf("x402http: Origin is %q, and must be an origin in lower case without a path, such as https://shop.example", origin)
	u, err := url.Parse(origin)
	if err != nil || u.Hostname() == "" {
		return nil, wrong
	}
	bare := u.Scheme + "://" + u.Host
	if origin != bare || origin != strings.ToLower(origin) {
		return nil, wrong
	}
	port := ""
	switch u.Scheme {
	case "https":
		port = ":443"
	case "http":
		port = ":80"
	default:
		return nil, wrong
	}
	if u.Port() != "" {
		return []string{u.Host}, nil
	}
	return []string{u.Host, u.Host + port}, nil
}

// originOf returns the origin that the Host of a request names, or else the default origin.
func (o origins) originOf(r *http.Request) string {
	origin, named := o.byHost[strings.ToLower(r.Host)]
	if !named {
		return o.defaultOrigin
	}
	return origin
}
