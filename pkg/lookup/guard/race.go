package guard

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// attemptDelay is how long an attempt to connect is waited for before another begins
// beside it: the Connection Attempt Delay of RFC 8305 §5.
const attemptDelay = 250 * time.Millisecond

// failure is an address that took no connection, and why.
type failure struct {
	addr netip.Addr
	err  error
}

// attempt is how the attempt at the address with this index ended.
type attempt struct {
	index    int
	conn     net.Conn
	err      error
	panicked any // nil unless it panicked
}

// race connects to addresses as RFC 8305 does: to one after the other, the next when
// attemptDelay is over or at once when the one before has failed, without giving those up
// that are still on their way. The first to connect wins. The others have ended, and their
// connections are closed, when race returns. Without a winner it returns why each address
// failed, in the order of the addresses that were tried. It panics if an attempt did.
func race(
	ctx context.Context, addrs []netip.Addr, connect func(context.Context, netip.Addr) (net.Conn, error),
) (net.Conn, netip.Addr, []failure) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan attempt)
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
			a := attempt{index: index}
			defer func() { // a panic belongs to the caller, who may recover from it
				a.panicked = recover()
				ended <- a
			}()
			a.conn, a.err = connect(ctx, addrs[index])
		}()
	}
	defer func() {
		cancel()
		for ; running > 0; running-- {
			if late := <-ended; late.conn != nil {
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
		case a := <-ended:
			running--
			if a.panicked != nil {
				panic(a.panicked)
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

// inTurn takes from the first list and from the second in turn, and then the rest of the longer
// one.
func inTurn(first, second []netip.Addr) []netip.Addr {
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
