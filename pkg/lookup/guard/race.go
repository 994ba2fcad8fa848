package guard

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// attemptDelay is how long the function race waits for one attempt to connect. Then it starts
// the next attempt in parallel. RFC 8305 §5 calls this the Connection Attempt Delay.
const attemptDelay = 250 * time.Millisecond

// failure holds an address to which no connection could be made, and the reason.
type failure struct {
	addr netip.Addr
	err  error
}

// attemptResult is the result of connecting to one address. index is the index of that address
// in the parameter addrs of race.
type attemptResult struct {
	index      int
	conn       net.Conn
	err        error
	panicValue any // the value of the panic, or nil
}

// race connects to addresses one after the other, as RFC 8305 describes. It starts the next
// attempt after attemptDelay, or at once when an attempt has failed. Earlier attempts continue
// meanwhile. race returns the first connection that succeeds. By then, all other attempts have
// ended and their connections are closed. If no attempt succeeds, race returns the failure of
// each address that it tried, in the order of the addresses. If an attempt panics, race
// panics.
func race(
	ctx context.Context, addrs []netip.Addr, connect func(context.Context, netip.Addr) (net.Conn, error),
) (net.Conn, netip.Addr, []failure) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan attemptResult)
	started := 0
	running := 0
	start := func() {
		if started == len(addrs) {
			return
		}
		index := started
		started++
		running++
		go func() {
			a := attemptResult{index: index}
			defer func() { // race repeats the panic in the goroutine of its caller
				a.panicValue = recover()
				results <- a
			}()
			a.conn, a.err = connect(ctx, addrs[index])
		}()
	}
	defer func() {
		cancel()
		for ; running > 0; running-- {
			if late := <-results; late.conn != nil {
				late.conn.Close()
			}
		}
	}()
	next := time.NewTimer(attemptDelay)
	defer next.Stop()
	errs := make([]error, len(addrs))
	start()
	for running > 0 {
		select {
		case <-next.C:
			start()
			next.Reset(attemptDelay)
		case a := <-results:
			running--
			if a.panicValue != nil {
				panic(a.panicValue)
			}
			if a.err == nil {
				return a.conn, addrs[a.index], nil
			}
			errs[a.index] = a.err
			if ctx.Err() == nil {
				start()
				next.Reset(attemptDelay)
			}
		}
	}
	failed := make([]failure, started)
	for i := range failed {
		failed[i] = failure{addr: addrs[i], err: errs[i]}
	}
	return nil, netip.Addr{}, failed
}

// interleave returns the elements of the two lists alternately, beginning with the first list.
// The rest of the longer list follows at the end.
func interleave(first, second []netip.Addr) []netip.Addr {
	var all []netip.Addr
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			all = append(all, first[i])
		}
		if i < len(second) {
			all = append(all, second[i])
		}
	}
	return all
}
