package main

import (
	"bufio"
	"bytes"
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

// request makes the nth request of a round. All are made before the round begins:
// signing is the client's work and is not measured.
type request func(ctx context.Context) (*http.Request, error)

// target is a server under load.
type target struct {
	name   string
	server *server
	make   request
	check  func(status int, body []byte) error
}

// round is what one run of requests came to.
type round struct {
	perSecond  float64
	p50, p99   time.Duration
	processors float64 // of the server: seconds of processor time in a second
}

// play sends n requests by so many clients at once, each over a connection of its
// own, and each the next one when it has its answer.
func (t target) play(ctx context.Context, clients, n int) (round, error) {
	all := make([][]byte, n)
	for i := range all {
		r, err := t.make(ctx)
		if err == nil {
			all[i], err = onTheWire(r)
		}
		if err != nil {
			return round{}, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	took := make([]time.Duration, n)
	var next atomic.Int64
	var crowd sync.WaitGroup
	failures := make(chan error, clients)
	before := t.server.processorTime()
	begun := time.Now()
	for range clients {
		crowd.Go(func() {
			if err := t.ask(ctx, all, took, &next); err != nil {
				failures <- err
			}
		})
	}
	crowd.Wait()
	lasted := time.Since(begun)
	spent := t.server.processorTime() - before
	select {
	case err := <-failures:
		return round{}, fmt.Errorf("%s: %w", t.name, err)
	default:
	}
	slices.Sort(took)
	return round{
		perSecond: float64(n) / lasted.Seconds(), p50: percentile(took, 50), p99: percentile(took, 99),
		processors: spent.Seconds() / lasted.Seconds(),
	}, nil
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// onTheWire is a request as it is sent. It is made before the round, so that the
// client, which shares the processors with the server, does little.
func onTheWire(r *http.Request) ([]byte, error) {
	var b bytes.Buffer
	err := r.Write(&b)
	return b.Bytes(), err
}

// ask is one client: it sends the next request on its connection when it has the
// answer to the one before, until there is none left.
func (t target) ask(ctx context.Context, all [][]byte, took []time.Duration, next *atomic.Int64) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(t.server.origin, "http://"))
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

// exchange sends one request and reads its answer whole.
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
	if err != nil {
		return 0, err
	}
	if res.Close {
		return 0, errors.New("the server closed a connection that was to be kept")
	}
	return took, t.check(res.StatusCode, body)
}

// percentile is of sorted durations, by the nearest rank.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// pace is how long and how often targets are measured.
type pace struct {
	rounds int
	each   time.Duration
}

// Bounds of the requests of a round: enough for a percentile, and no more signed
// payments than memory is there for.
const (
	leastRequests = 100
	mostRequests  = 20_000
)

// measure plays targets in turn, in alternating order, and returns the medians of
// each. How many requests a round has is found by a first round that does not count.
func measure(ctx context.Context, p pace, clients int, targets ...target) ([]round, error) {
	sizes := make([]int, len(targets))
	for i, t := range targets {
		first, err := t.play(ctx, clients, max(leastRequests, 4*clients))
		if err != nil {
			return nil, err
		}
		sizes[i] = min(max(int(first.perSecond*p.each.Seconds()), leastRequests, 4*clients), mostRequests)
	}
	all := make([][]round, len(targets))
	for n := range p.rounds {
		for k := range targets {
			i := k
			if n%2 == 1 {
				i = len(targets) - 1 - k
			}
			r, err := targets[i].play(ctx, clients, sizes[i])
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], r)
		}
	}
	medians := make([]round, len(targets))
	for i, rounds := range all {
		medians[i] = round{
			perSecond:  medianOf(rounds, func(r round) float64 { return r.perSecond }),
			p50:        time.Duration(medianOf(rounds, func(r round) float64 { return float64(r.p50) })),
			p99:        time.Duration(medianOf(rounds, func(r round) float64 { return float64(r.p99) })),
			processors: medianOf(rounds, func(r round) float64 { return r.processors }),
		}
	}
	return medians, nil
}

func medianOf(rounds []round, of func(round) float64) float64 {
	values := make([]float64, 0, len(rounds))
	for _, r := range rounds {
		values = append(values, of(r))
	}
	return median(values)
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
