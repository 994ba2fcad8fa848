package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// headRaced is like head, but tries several addresses of a host as RFC 8305 describes,
// beginning with IPv4. The service is compared with headRaced for hosts with dead addresses.
func headRaced(ctx context.Context, domain string) error {
	return headBy(ctx, domain, &http.Transport{DialContext: dialRaced})
}

// dialRaced tries the addresses of a host in order, and returns the first connection that
// succeeds. It tries the next address 250 ms after it began with the previous one, or at once
// if a try fails.
func dialRaced(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	all, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	addrs := alternateFamilies(all)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, len(addrs))
	started := 0
	start := func() {
		if started < len(addrs) {
			to := net.JoinHostPort(addrs[started].String(), port)
			started++
			go func() {
				conn, err := new(net.Dialer).DialContext(ctx, network, to)
				results <- result{conn, err}
			}()
		}
	}
	start()
	for ended := 0; ended < len(addrs); {
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			ended++
			err = r.err
			start()
		case <-time.After(250 * time.Millisecond):
			start()
		}
	}
	return nil, errors.Join(errors.New("no address took a connection"), err)
}

// alternateFamilies orders addresses so that IPv4 and IPv6 alternate, beginning with IPv4.
func alternateFamilies(all []net.IP) (addrs []net.IP) {
	families := [2][]net.IP{}
	for _, ip := range all {
		family := 0
		if ip.To4() == nil {
			family = 1
		}
		families[family] = append(families[family], ip)
	}
	for i := range all {
		for _, family := range families {
			if i < len(family) {
				addrs = append(addrs, family[i])
			}
		}
	}
	return addrs
}
