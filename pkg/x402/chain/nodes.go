package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// MaxNodes bounds a list of nodes: each gets a share of a few seconds.
const MaxNodes = 5

// Nodes asks several nodes in order, as if they were one. Each has its share of
// the time that is left: one that is down, on another chain, or behind is passed
// over, and the first that can answer is believed. It is safe for concurrent use.
type Nodes struct {
	config NodesConfig
	static []*Client

	failed atomic.Bool // none of the nodes that were asked last could answer

	mu   sync.Mutex
	urls []string  // what Read gave
	read []*Client // and the clients for it
}

var (
	_ x402.Evidence = (*Nodes)(nil)
	_ x402.Scanner  = (*Nodes)(nil)
)

// NodesConfig is what Nodes need.
type NodesConfig struct {
	// Config is that of each node; its URL is not used.
	Config
	// URLs are the nodes, the first asked first. It may be empty where there is
	// Read.
	URLs []string
	// Read gives a list that is asked in place of URLs, such as one with keys that
	// is kept in a secret; nil is none. It is called each time that the chain is
	// asked, and told whether no node could answer the last time. Until it has
	// given a list, and when that is empty, URLs are asked. Its errors must not
	// contain a URL.
	Read func(ctx context.Context, now time.Time, failed bool) ([]string, error)
}

// NewNodes checks the configuration and makes no connection.
func NewNodes(c NodesConfig) (*Nodes, error) {
	n := &Nodes{config: c}
	if c.Now == nil {
		n.config.Now = time.Now
	}
	if len(c.URLs) == 0 && c.Read == nil {
		return nil, errors.New("chain: no node")
	}
	var err error
	n.static, err = n.clients(c.URLs)
	return n, err
}

func (n *Nodes) clients(urls []string) ([]*Client, error) {
	if len(urls) > MaxNodes {
		return nil, fmt.Errorf("chain: more than %d nodes", MaxNodes)
	}
	var all []*Client
	for i, u := range urls {
		c := n.config.Config
		c.URL = u
		client, err := New(c)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", i+1, err)
		}
		all = append(all, client)
	}
	return all, nil
}

// nodes are those to ask now.
func (n *Nodes) nodes(ctx context.Context) ([]*Client, error) {
	if n.config.Read == nil {
		return n.static, nil
	}
	urls, err := n.config.Read(ctx, n.config.Now(), n.failed.Load())
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && !slices.Equal(urls, n.urls) {
		var all []*Client
		if all, err = n.clients(urls); err == nil {
			n.urls, n.read = urls, all
		}
	}
	switch {
	case len(n.read) > 0:
		return n.read, nil
	case len(n.static) > 0:
		return n.static, nil
	case err == nil:
		err = errors.New("the list is empty")
	}
	return nil, fmt.Errorf("chain: read the list of nodes: %w", err)
}

// each asks one node after the other, each within its share of the time, until one
// can answer. most ends a call whose caller set no deadline.
func (n *Nodes) each(ctx context.Context, most time.Duration, ask func(ctx context.Context, c *Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	nodes, err := n.nodes(ctx)
	if err != nil {
		return err
	}
	var failed []error
	defer func() { n.failed.Store(len(failed) == len(nodes)) }()
	for i, c := range nodes {
		err := share(ctx, len(nodes)-i, func(ctx context.Context) error { return ask(ctx, c) })
		if err == nil {
			return nil
		}
		if len(nodes) > 1 {
			err = fmt.Errorf("node %d: %w", i+1, err)
		}
		failed = append(failed, err)
	}
	if len(failed) == 1 {
		return failed[0]
	}
	return errors.Join(failed...)
}

// share calls f with one part of the time that is left.
func share(ctx context.Context, parts int, f func(ctx context.Context) error) error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(parts))
		defer cancel()
	}
	return f(ctx)
}

// Find implements x402.Evidence.
func (n *Nodes) Find(ctx context.Context, q x402.Question) x402.Finding {
	var found x402.Finding
	err := n.each(ctx, ceiling, func(ctx context.Context, c *Client) error {
		found = c.Find(ctx, q)
		if found.Verdict == x402.CannotTell {
			return cmpErr(found.Cause)
		}
		return nil
	})
	if err != nil {
		return x402.Finding{Cause: err}
	}
	return found
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("chain: no verdict")
	}
	return err
}

// Probe reports whether one of the nodes can be asked (see Client.Probe).
func (n *Nodes) Probe(ctx context.Context) error {
	return n.each(ctx, ceiling, func(ctx context.Context, c *Client) error { return c.Probe(ctx) })
}

// Received is Client.Received of the first node that knows the transaction.
func (n *Nodes) Received(ctx context.Context, transaction string, to x402.Address) (list []x402.Transfer, err error) {
	err = n.each(ctx, ceiling, func(ctx context.Context, c *Client) (err error) {
		list, err = c.Received(ctx, transaction, to)
		return err
	})
	return list, err
}

// Transfers implements x402.Scanner: from the first node that has read anything,
// or that has a safe block to read up to. A node that lags behind what was read
// before is passed over for one that does not.
func (n *Nodes) Transfers(ctx context.Context, payee x402.Address, from uint64) (x402.Batch, error) {
	batch, read := x402.Batch{Next: from}, false
	err := n.each(ctx, scanCeiling, func(ctx context.Context, c *Client) error {
		b, err := c.Transfers(ctx, payee, from)
		if err != nil {
			return err
		}
		if !read || b.Safe > batch.Safe {
			batch, read = b, true
		}
		if b.Next == from && b.Safe+1 < from {
			return errors.New("the node is behind what was read before")
		}
		return nil
	})
	if read {
		return batch, nil
	}
	return batch, err
}

// SafeBlock implements x402.Scanner.
func (n *Nodes) SafeBlock(ctx context.Context) (block uint64, err error) {
	err = n.each(ctx, ceiling, func(ctx context.Context, c *Client) (err error) {
		block, err = c.SafeBlock(ctx)
		return err
	})
	return block, err
}

// BlockAt implements x402.Scanner.
func (n *Nodes) BlockAt(ctx context.Context, t time.Time) (block uint64, err error) {
	err = n.each(ctx, scanCeiling, func(ctx context.Context, c *Client) (err error) {
		block, err = c.BlockAt(ctx, t)
		return err
	})
	return block, err
}
