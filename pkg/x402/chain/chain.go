// Package chain asks Ethereum nodes over JSON-RPC whether a payment (an EIP-3009 authorization)
// has moved money to the seller, and which other transfers arrived. A seller uses it as its
// Evidence, so that the chain decides when a facilitator leaves a payment in doubt. It
// implements x402.Evidence and reconcile.Scanner.
//
// This table shows what Find returns for each kind of evidence. "latest" and "safe" are the
// node's blocks with these tags.
//
//	the authorization's own Transfer, to the payee, of the value   Paid
//	  the same, in a block over 60 s older than the first claim    NeverPaid
//	  to another account, or of another value                      NeverPaid
//	AuthorizationCanceled                                          NeverPaid
//	spent, and spent already over 60 s before the first claim      NeverPaid
//	unused at latest, latest before validBefore                    StillOpen
//	unused at latest, safe before validBefore                      StillOpen
//	unused at latest and at safe, safe past validBefore            NeverPaid
//	everything else                                                CannotTell
//
// If the seller may have submitted the authorization, both limits of 60 s are ten minutes
// instead.
//
// A used authorization does not prove a payment: the authorization may have been cancelled, or
// a third party may have copied and submitted it. So Find needs two logs: the log of the
// authorization, and the log of its Transfer. USDC emits the two in succession, so the Transfer
// is the token's log with the next log index.
//
// A receipt counts even if its block is the latest one. An authorization counts as expired
// only at a block that the node calls safe (or finalized, if it does not know safe). No
// reorganisation can then make the authorization executable again. NeverPaid is not accepted
// from a node if the time of its latest block is more than five minutes away from our clock.
//
// Only complete and consistent replies count. A malformed reply, a log that a reorganisation
// removed, a receipt from another block than its log, and two contradictory statements are all
// CannotTell with a cause.
//
// A call of Transfers costs three messages if there is no new transfer, and four if there is
// one. It costs one more for each further 10,000 blocks, and for each further 16 blocks with
// transfers. A node that limits ranges or batches needs more messages.
package chain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

const (
	// MaxNodes is the largest number of nodes. All nodes together have only a few seconds for
	// an answer.
	MaxNodes = 5

	// ceiling is the longest time that a call may take, even if its caller set no deadline.
	// (The Gate sets a deadline of 4 s.) scanCeiling is the longest time of a call that
	// searches thousands of blocks, such as Transfers.
	ceiling     = 10 * time.Second
	scanCeiling = 30 * time.Second

	// maxCalls bounds the messages to one node in one call of Find, Received, BlockAt or
	// Transfers. It is enough to search a day of Base if the node allows 2,000 blocks a search.
	maxCalls = 48
	// headAge is the largest accepted difference between the time of a node's latest block and
	// our clock. If the difference is larger, the node is not believed when it says that
	// something has not happened.
	headAge = 5 * time.Minute

	maxURL = 2048
)

var errNoNode = errors.New("chain: no node")

// Config holds the settings of Nodes. Network, Asset, and URLs or Read are required.
type Config struct {
	// URLs are the JSON-RPC endpoints of the nodes, in the order in which they are asked. A URL
	// may hold an API key in its path, query or user part. No error contains a URL.
	URLs []string
	// Read returns URLs to use in place of the field URLs: for example, URLs with keys that are
	// kept in a secret. Read may be nil. It is called whenever the chain is asked. Its argument
	// failed is true if no node could answer the previous time. Until Read has returned a list,
	// and whenever that list is empty, the nodes in the field URLs are asked. An error of Read
	// must not contain a URL.
	Read func(ctx context.Context, now time.Time, failed bool) ([]string, error)
	// Network is the CAIP-2 name of the chain, such as eip155:8453. The nodes must be on it.
	Network string
	// Asset is the address of the EIP-3009 token.
	Asset string
	// Now is the clock with which a node's latest block is compared; nil means time.Now.
	Now func() time.Time
	// UserAgent is sent to tell the nodes' operators which service this is.
	UserAgent string
}

// Nodes asks several nodes about one token, one node after another, as if they were one node.
// Each node gets a share of the remaining time. Nodes skips a node that is down, on another
// chain, or behind, and believes the first node that can answer. Nodes is safe for concurrent
// use.
type Nodes struct {
	config       Config
	transport    http.RoundTripper
	token        string // the token's address, in lower case
	chainID      uint64
	maxCalls     int
	maxBody      int64 // the largest reply that is read, in bytes
	configured   []*node
	noneAnswered atomic.Bool // whether the last call got no answer from any node

	mu          sync.Mutex
	urls        []string // the newest list that Config.Read returned
	listedNodes []*node  // the nodes at urls
}

var (
	_ x402.Evidence     = (*Nodes)(nil)
	_ reconcile.Scanner = (*Nodes)(nil)
)

// New checks the configuration and returns Nodes. It makes no connection.
func New(c Config) (*Nodes, error) {
	id, err := x402.ChainID(c.Network)
	if err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	asset, err := x402.ParseAddress(c.Asset)
	if err != nil {
		return nil, fmt.Errorf("chain: asset %w", err)
	}
	if len(c.URLs) == 0 && c.Read == nil {
		return nil, errNoNode
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	static, err := parseNodes(c.URLs)
	if err != nil {
		return nil, err
	}
	return &Nodes{
		config:     c,
		transport:  newTransport(),
		token:      asset.String(),
		chainID:    id,
		maxCalls:   maxCalls,
		maxBody:    maxBody,
		configured: static,
	}, nil
}

// parseNodes parses the URLs of endpoints. No error quotes a URL, because many providers put
// keys into their URLs.
func parseNodes(urls []string) ([]*node, error) {
	if len(urls) > MaxNodes {
		return nil, fmt.Errorf("chain: more than %d nodes", MaxNodes)
	}
	nodes := make([]*node, len(urls))
	for i, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil || len(raw) > maxURL || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Fragment != "" {
			return nil, fmt.Errorf("node %d: RPC URL is not an http or https URL of at most %d bytes, without a fragment", i+1, maxURL)
		}
		nodes[i] = &node{url: u}
	}
	return nodes, nil
}

// nodes returns the nodes that Read lists, or else the configured nodes.
func (n *Nodes) nodes(ctx context.Context) ([]*node, error) {
	if n.config.Read == nil {
		return n.configured, nil
	}
	urls, err := n.config.Read(ctx, n.config.Now(), n.noneAnswered.Load())
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && !slices.Equal(urls, n.urls) {
		err = n.setListed(urls)
	}
	switch {
	case len(n.listedNodes) > 0:
		return n.listedNodes, nil
	case len(n.configured) > 0:
		return n.configured, nil
	}
	return nil, fmt.Errorf("chain: read the list of nodes, which is empty: %w", errors.Join(err, errNoNode))
}

// setListed sets the list of nodes that Read returned. If that list is invalid, setListed
// keeps the previous list. The caller holds the lock.
func (n *Nodes) setListed(urls []string) error {
	nodes, err := parseNodes(urls)
	if err != nil {
		return err
	}
	n.urls = urls
	n.listedNodes = nodes
	return nil
}

// tryEach calls ask with one node after another until a call succeeds. Each node gets an equal
// share of the time that remains. limit is the longest time for all nodes together, even if
// the caller set no deadline.
func (n *Nodes) tryEach(ctx context.Context, limit time.Duration, ask func(s *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	nodes, err := n.nodes(ctx)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	var failed []error
	defer func() { n.noneAnswered.Store(len(failed) == len(nodes)) }()
	for i, to := range nodes {
		share, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(nodes)-i))
		s, err := n.newSession(share, to)
		if err == nil {
			err = ask(s)
		}
		cancel()
		if err == nil {
			return nil
		}
		if len(nodes) > 1 {
			err = fmt.Errorf("node %d: %w", i+1, err)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Probe returns nil if at least one of the nodes answers, is on the right chain, and has a
// recent latest block. Otherwise it returns a *fault.Error with a public message.
func (n *Nodes) Probe(ctx context.Context) error {
	err := n.tryEach(ctx, ceiling, func(s *session) error {
		_, err := s.recentHead(headAge)
		return err
	})
	if err == nil {
		return nil
	}
	if unfit, is := errors.AsType[*fault.Error](err); is {
		return unfit
	}
	return fault.Newf(fault.PaymentUnavailable, err, "the RPC node does not answer as it should")
}
