package chain

import (
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	// blockTime is Base's. It is a first guess only: a chain with slower
	// blocks is searched a little too far, and one with faster blocks is
	// measured when the guess turns out to be wrong.
	blockTime = 2 * time.Second
	// margin is added to a guess, in blocks, so that a right one need not be
	// repaired because of seconds.
	margin = 32
	// repairs bounds how often the guess is measured again.
	repairs = 3
)

// errSpentBefore says that the authorization was spent before the oldest block
// whose payment can be for us. By what does not matter.
var errSpentBefore = errors.New("authorization was spent before it reached us")

// search finds the log that used or cancelled the authorization, which the
// latest head says has been spent. An authorization is used in a block between
// the first claim and its end, as a rule in the first seconds: that stretch is
// searched first, oldest block first. If it is not there, the first block of
// the stretch tells whether it was spent earlier still. Only then come the
// blocks after its end, where it can only have been cancelled, and, on nodes
// that keep no old states, the older blocks, newest first, as far as the calls
// reach.
func (i *inquiry) search(head *header) (*entry, error) {
	low, high := i.guess(head)
	l, err := i.forward(low, high)
	if l != nil || err != nil {
		return l, err
	}
	low, l, err = i.repair(head, low)
	if l != nil || err != nil {
		return l, err
	}
	early, err := i.used(hexQuantity(low))
	var refused *nodeError
	known := err == nil
	switch {
	case known && early:
		return nil, errSpentBefore
	case !known && !errors.As(err, &refused):
		return nil, err
	}
	l, err = i.forward(high+1, head.number)
	if l != nil || err != nil {
		return l, err
	}
	if known {
		return nil, fmt.Errorf("authorization was spent after block %d, and there is no log of it", low)
	}
	if low > 0 {
		l, err = i.backward(low - 1)
	}
	if l == nil && err == nil {
		err = errors.New("authorization is spent, and there is no log of it")
	}
	return l, err
}

// guess is the stretch of blocks from just before the oldest that can be for
// us to just after the authorization's end, by Base's block time.
func (i *inquiry) guess(head *header) (low, high uint64) {
	low = back(head.number, blocksSince(head, i.oldest())+margin)
	high = head.number
	if n := blocksSince(head, i.q.ValidBefore); n > margin {
		high = back(head.number, n-margin)
	}
	return low, max(low, high)
}

// blocksSince is how many blocks a chain with Base's pace makes from t to head.
func blocksSince(head *header, t time.Time) uint64 {
	return uint64(max(0, head.time.Sub(t)) / blockTime)
}

// back is n-by, but never below the first block.
func back(n, by uint64) uint64 { return n - min(n, by) }

// repair makes sure that low is older than the oldest block that can be for
// us, searching what it adds. It goes by the pace that the chain has shown,
// and half as far again.
func (i *inquiry) repair(head *header, low uint64) (uint64, *entry, error) {
	for try := 0; ; try++ {
		if low == 0 {
			return 0, nil, nil
		}
		floor, err := i.block(low)
		if err != nil {
			return low, nil, err
		}
		missing := floor.time.Sub(i.oldest())
		if missing < 0 {
			return low, nil, nil
		}
		if try == repairs || floor.number >= head.number {
			return low, nil, errors.New("the chain's pace is too uneven to search it")
		}
		pace := float64(head.number-floor.number) / max(1, head.time.Sub(floor.time).Seconds())
		further := back(low, uint64(math.Min(1.5*pace*(missing.Seconds()+1)+margin, maxNumber)))
		l, err := i.forward(further, low-1)
		if l != nil || err != nil {
			return low, l, err
		}
		low = further
	}
}

// forward searches low to high, oldest block first.
func (i *inquiry) forward(low, high uint64) (*entry, error) {
	for low <= high {
		to := min(high, low+i.chunk-1)
		l, err := i.logs(low, to)
		if i.narrower(err, to-low+1) {
			continue
		}
		if l != nil || err != nil {
			return l, err
		}
		low = to + 1
	}
	return nil, nil
}

// backward searches from high down to the first block.
func (i *inquiry) backward(high uint64) (*entry, error) {
	for {
		from := back(high, i.chunk-1)
		l, err := i.logs(from, high)
		if i.narrower(err, high-from+1) {
			continue
		}
		if l != nil || err != nil || from == 0 {
			return l, err
		}
		high = from - 1
	}
}

// logs asks for the log that used or cancelled the authorization in a range of
// blocks. Both arguments of the events are indexed, so the node's filter is
// exact, and what it lets through must be exactly that.
func (i *inquiry) logs(low, high uint64) (*entry, error) {
	raw, err := i.call(methodLogs, map[string]any{
		"address":   i.client.token,
		"topics":    []any{[]string{topicUsed, topicCanceled}, i.names.payer, i.names.nonce},
		"fromBlock": hexQuantity(low),
		"toBlock":   hexQuantity(high),
	})
	if err != nil {
		return nil, err
	}
	found, err := decodeLogs(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("logs: %w", err)
	case len(found) == 0:
		return nil, nil
	case len(found) > 1:
		return nil, errors.New("logs: one authorization was spent twice")
	case !i.names.concerns(found[0]) || found[0].number < low || found[0].number > high:
		return nil, errors.New("logs: node gave what was not asked for")
	}
	return &found[0], nil
}
