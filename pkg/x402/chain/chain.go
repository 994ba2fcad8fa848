// Package chain answers x402.Evidence from an Ethereum node over JSON-RPC: did
// this EIP-3009 authorization move money to us?
//
// What it says, and on what:
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
// That an authorization is used does not prove a payment: authorizationState is
// true after a cancellation, too, and a third party can submit an authorization
// that it copied. So the log of the authorization itself, and the transfer that it
// made, decide. The authorization's own Transfer is the token's log with the next
// log index, because USDC emits the two one after the other; a transaction that
// holds several payments is read one payment at a time.
//
// A receipt counts at the latest head. A refusal by time needs a block that
// the node calls safe (or finalized, if it does not know safe), so that no
// reorganisation makes the authorization executable again. No refusal of any kind
// is taken from a node whose latest block is minutes away from our clock.
//
// Only complete and consistent replies count: a malformed reply, a log that a
// reorganisation removed, a receipt of another block than its log's, and two
// statements that contradict each other are all CannotTell with a cause.
//
// Calls per answer, beside one eth_chainId per Client (the tests count them):
//
//	Paid, the transaction is known               2  receipt, block
//	Paid, it has to be searched                  5  state, latest, logs, receipt, block
//	another transfer                             5  as above
//	cancelled                                    3  state, latest, logs
//	spent before the first claim                 5  state, latest, logs, block, state
//	open                                         2  state, latest
//	expired, not safe yet                        3  state, latest, safe
//	expired unused                               4  state, latest, safe, state
//	what one transaction has transferred         2  receipt, block (Received)
//
// It also answers x402.Scanner: which transfers have reached a payee since a
// block, up to the newest that the node calls safe, and which authorization
// moved each. Reading by range finds money that a facilitator had called refused,
// and money that came without a request, and its cost depends on what was
// transferred. Asking about each refused payment would do neither. Transfers are searched for by range of blocks, with the last
// block of the range, which the node must have. A transfer is an
// authorization's if the token's log right before it says so in the
// transaction's receipt, which must have the same transfers as the search had;
// its block's header must be the one on the chain. Where that is not bounded,
// because a receipt is too long or a block has more than twenty such
// transactions, the block's AuthorizationUsed logs are searched for instead. A
// run costs two messages if no block is new, three if no transfer is and four
// if one is, and one more for each further 10,000 blocks, or 25 transfers in
// blocks of their own; more where a node caps ranges or batches.
//
// On loopback, with the node on the same two cores, that is 0.2 ms for a known
// transaction and 0.5 ms for a searched one; across a network it is the round
// trips.
package chain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// ceiling ends a Find or Probe whose caller set no deadline. The design
	// gives evidence four seconds.
	ceiling = 10 * time.Second

	defaultMaxCalls = 48
	defaultHeadAge  = 5 * time.Minute

	defaultUserAgent = "hostfacts"
	maxUserAgent     = 128
	maxURL           = 2048
)

// Config is what a Client needs. URL, Network and Asset have no default.
type Config struct {
	// URL is the node's JSON-RPC endpoint. It may hold an API key in its path,
	// query or user part; it appears in no error.
	URL string
	// Network is the chain as CAIP-2 names it, such as eip155:8453. The node
	// must be on it.
	Network string
	// Asset is the address of the EIP-3009 token.
	Asset string
	// Transport replaces the client's own. It must not follow redirects.
	Transport http.RoundTripper
	// Now is the clock that the node's latest block is compared with; nil
	// means time.Now.
	Now func() time.Time
	// UserAgent names the service to the node's operator.
	UserAgent string
	// MaxCalls bounds the JSON-RPC calls of one Find, and the messages of one
	// Transfers, of which a batch of calls is one; 0 means 48, which is some
	// 80 ms for each in four seconds, and enough to search a day of Base where
	// a node allows 2,000 blocks a call. With less, a Transfers may be unable
	// to finish a block, and says so.
	MaxCalls int
	// HeadAge is how far the node's latest block may be from our clock for the
	// node to be believed that something never happened; 0 means 5 minutes.
	HeadAge time.Duration
	// Confirmations is how many blocks deep a block counts as safe on a node
	// that knows neither safe nor finalized. 0 means that depth proves
	// nothing: on such a node an expired authorization stays StillOpen.
	Confirmations uint64
}

// Client asks one node about one token. It is safe for concurrent use.
type Client struct {
	endpoint
	token         string // lower case
	chainID       uint64
	chainChecked  atomic.Bool
	now           func() time.Time
	maxCalls      int
	maxScan       int // bytes of a reply to a scan
	headAge       time.Duration
	confirmations uint64
}

var _ x402.Evidence = (*Client)(nil)

// New checks the configuration and returns a client. It makes no connection.
func New(c Config) (*Client, error) {
	target, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	id, err := x402.ChainID(c.Network)
	if err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	asset, err := x402.ParseAddress(c.Asset)
	if err != nil {
		return nil, fmt.Errorf("chain: asset %w", err)
	}
	if c.MaxCalls < 0 || c.HeadAge < 0 {
		return nil, errors.New("chain: limits must not be negative")
	}
	client := &Client{
		endpoint: endpoint{url: target, transport: c.Transport, userAgent: c.UserAgent},
		token:    asset.String(), chainID: id, now: c.Now,
		maxCalls: c.MaxCalls, maxScan: maxScanBody, headAge: c.HeadAge, confirmations: c.Confirmations,
	}
	if len(c.UserAgent) > maxUserAgent || !printable.ASCII(c.UserAgent) {
		return nil, fmt.Errorf("chain: user agent is longer than %d bytes or not printable ASCII", maxUserAgent)
	}
	if client.userAgent == "" {
		client.userAgent = defaultUserAgent
	}
	if client.transport == nil {
		client.transport = newTransport()
	}
	if client.now == nil {
		client.now = time.Now
	}
	if client.maxCalls == 0 {
		client.maxCalls = defaultMaxCalls
	}
	if client.headAge == 0 {
		client.headAge = defaultHeadAge
	}
	return client, nil
}

// parseURL reads the endpoint. The errors do not quote it: it is a secret where
// a provider puts its key into it.
func parseURL(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("RPC URL is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("RPC URL cannot be parsed")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("RPC URL must begin with https:// or http://")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("RPC URL has no host")
	case u.Fragment != "":
		return nil, errors.New("RPC URL must not have a fragment")
	}
	return u, nil
}

// Find says what the chain knows about q. It is bounded by ctx, by ten seconds
// and by Config.MaxCalls. See the package comment for the verdicts; every
// CannotTell has a cause.
func (c *Client) Find(ctx context.Context, q x402.Question) x402.Finding {
	if err := answerable(q); err != nil {
		return x402.Finding{Cause: err}
	}
	ctx, cancel := context.WithTimeout(ctx, ceiling)
	defer cancel()
	f, err := c.newInquiry(ctx, q).find()
	if err != nil {
		return x402.Finding{Cause: fmt.Errorf("ask the chain: %w", err)}
	}
	return f
}

// answerable refuses a question with a part missing: its answer would be about
// something else.
func answerable(q x402.Question) error {
	switch {
	case q.Value == nil || q.Value.Sign() < 0 || q.Value.BitLen() > 256:
		return errors.New("chain: the question has no value")
	case q.Since.IsZero() || q.ValidBefore.IsZero():
		return errors.New("chain: the question has no time")
	}
	return nil
}

// Probe reports whether the node can be asked: it answers, is on the right
// chain, and its latest block is recent. Errors are *fault.Error with a public
// message.
func (c *Client) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ceiling)
	defer cancel()
	s := c.newSession(ctx, maxBody)
	if err := s.rightChain(); err != nil {
		return unready(err)
	}
	head, err := s.latest()
	if err == nil {
		err = s.recent(head)
	}
	return unready(err)
}

// unready puts why a node cannot be used into public words.
func unready(err error) error {
	var wrong *wrongChainError
	var old *staleError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return fault.Newf(fault.PaymentUnavailable, err, "the RPC node is on another chain")
	case errors.As(err, &old):
		return fault.Newf(fault.PaymentUnavailable, err, "the RPC node's latest block is not recent")
	}
	return fault.Newf(fault.PaymentUnavailable, err, "the RPC node does not answer as it should")
}
