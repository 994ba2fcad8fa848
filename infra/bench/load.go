package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type target struct {
	name   string
	server *server
	// make makes the next request of a round, as it is sent. All are made before the
	// round begins: signing is the client's work and is not measured.
	make func() []byte
	// An answer has this status, and this in its body.
	status int
	part   string
}

type round struct {
	perSecond  float64
	p50, p99   time.Duration
	processors float64 // of the server: seconds of processor time in a second
}

// play sends n requests by so many clients at once, each over a connection of its
// own, and each the next one when it has its answer.
func (t target) play(ctx context.Context, clients, n int) round {
	all, took := make([][]byte, n), make([]time.Duration, n)
	for i := range all {
		all[i] = t.make()
	}
	var next atomic.Int64
	var crowd sync.WaitGroup
	failures := make([]error, clients)
	before, begun := t.server.processorTime(), time.Now()
	for c := range clients {
		crowd.Go(func() { failures[c] = t.ask(ctx, all, took, &next) })
	}
	crowd.Wait()
	lasted, spent := time.Since(begun), t.server.processorTime()-before
	if err := errors.Join(failures...); err != nil {
		check(fmt.Errorf("%s: %w", t.name, err))
	}
	slices.Sort(took)
	return round{float64(n) / lasted.Seconds(), percentile(took, 50), percentile(took, 99), spent.Seconds() / lasted.Seconds()}
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// ask is one client: it sends the next request on its connection when it has the
// answer to the one before, until there is none left.
func (t target) ask(ctx context.Context, all [][]byte, took []time.Duration, next *atomic.Int64) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.server.host())
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 16<<10)
	for {
		i := int(next.Add(1)) - 1
		if i >= len(all) || ctx.Err() != nil {
			return ctx.Err()
		}
		if took[i], err = t.exchange(conn, in, all[i]); err != nil {
			return err
		}
	}
}

func (t target) exchange(conn net.Conn, in *bufio.Reader, request []byte) (time.Duration, error) {
	begun := time.Now()
	if _, err := conn.Write(request); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	took := time.Since(begun)
	if err == nil && (res.StatusCode != t.status || !strings.Contains(string(body), t.part)) {
		err = fmt.Errorf("status %d, want %d with %s: %.300s", res.StatusCode, t.status, t.part, body)
	}
	if err == nil && res.Close {
		err = errors.New("the server closed a connection that was to be kept")
	}
	return took, err
}

// percentile is of sorted durations, by the nearest rank.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// measure plays targets in turn for a second each, in alternating order, and returns the
// medians of each. How many requests a round has is found by a first round that does
// not count: enough for a percentile, and no more signed payments than memory is there
// for.
func (s site) measure(clients int, targets ...target) (medians []round) {
	const leastRequests, mostRequests = 100, 20_000
	least := max(leastRequests, 4*clients)
	sizes := make([]int, len(targets))
	for i, t := range targets {
		sizes[i] = min(max(int(t.play(s.ctx, clients, least).perSecond), least), mostRequests)
	}
	all := make([][]round, len(targets))
	for n := range max(1, s.runs/3) {
		for k := range targets {
			i := k
			if n%2 == 1 {
				i = len(targets) - 1 - k
			}
			all[i] = append(all[i], targets[i].play(s.ctx, clients, sizes[i]))
		}
	}
	for _, rounds := range all {
		medians = append(medians, round{
			perSecond:  median(rounds, func(r round) float64 { return r.perSecond }),
			p50:        median(rounds, func(r round) time.Duration { return r.p50 }),
			p99:        median(rounds, func(r round) time.Duration { return r.p99 }),
			processors: median(rounds, func(r round) float64 { return r.processors }),
		})
	}
	return medians
}

func median[N float64 | time.Duration](rounds []round, of func(round) N) N {
	var values []N
	for _, r := range rounds {
		values = append(values, of(r))
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
