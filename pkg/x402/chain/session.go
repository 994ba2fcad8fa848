package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// session is one run of calls to the node, within one budget.
type session struct {
	client *Client
	ctx    context.Context
	most   int     // bytes of one reply
	calls  int     // that are left
	chunk  uint64  // blocks that one search for logs may cover
	head   *header // once it was asked for
	size   int     // requests that one message may hold
}

func (c *Client) newSession(ctx context.Context, most int) *session {
	return &session{client: c, ctx: ctx, most: most, calls: c.maxCalls, chunk: widths()[0], size: sizes()[0]}
}

// wrongChainError says that the node is on another chain than it should.
type wrongChainError struct{ got, want uint64 }

func (e *wrongChainError) Error() string {
	return fmt.Sprintf("node is on chain %d, must be on %d", e.got, e.want)
}

// rightChain asks for the chain id until it was right once.
func (s *session) rightChain() error {
	if s.client.chainChecked.Load() {
		return nil
	}
	raw, err := s.call("eth_chainId")
	if err != nil {
		return err
	}
	got, err := quantity(raw, 1<<63)
	if err != nil {
		return fmt.Errorf("chain id %w", err)
	}
	if got != s.client.chainID {
		return &wrongChainError{got: got, want: s.client.chainID}
	}
	s.client.chainChecked.Store(true)
	return nil
}

// staleError says that the node's latest block is not of our time.
type staleError struct{ age time.Duration }

func (e *staleError) Error() string { return fmt.Sprintf("node's latest block is %s old", e.age) }

// recent says whether a block is near our clock, on either side of it: a node
// from the future would let an authorization expire early.
func (s *session) recent(head *header) error {
	if age := s.client.now().Sub(head.time); age.Abs() > s.client.headAge {
		return &staleError{age: age}
	}
	return nil
}

// call spends one of the permitted calls.
func (s *session) call(method string, params ...any) (json.RawMessage, error) {
	if s.calls <= 0 {
		return nil, errOutOfCalls
	}
	s.calls--
	return s.client.call(s.ctx, s.most, method, params...)
}

// latest is the node's newest block, as it was when it was first asked for.
func (s *session) latest() (*header, error) {
	if s.head != nil {
		return s.head, nil
	}
	h, err := s.tagged("latest")
	if err == nil && h == nil {
		err = errors.New("node has no latest block")
	}
	if err != nil {
		return nil, err
	}
	s.head = h
	return h, nil
}

func (s *session) tagged(tag string) (*header, error) {
	raw, err := s.call("eth_getBlockByNumber", tag, false)
	if err != nil {
		return nil, err
	}
	h, err := decodeHeader(raw)
	if err != nil {
		return nil, fmt.Errorf("block %s: %w", tag, err)
	}
	return h, nil
}

// block is the block with this number on the chain.
func (s *session) block(number uint64) (*header, error) {
	h, err := s.tagged(hexQuantity(number))
	if err != nil {
		return nil, err
	}
	return h, h.is(number)
}

// safe is the newest block that will not be undone. A node that knows neither
// safe nor finalized, which it says with an error or with null, has one only by
// configuration; nil means that it has none.
func (s *session) safe(head *header) (*header, error) {
	for _, tag := range []string{"safe", "finalized"} {
		h, err := s.tagged(tag)
		var refused *nodeError
		if h != nil || (err != nil && !errors.As(err, &refused)) {
			return h, err
		}
	}
	depth := s.client.confirmations
	if depth == 0 || depth > head.number {
		return nil, nil
	}
	return s.block(head.number - depth)
}

// receipt is nil for a transaction that is in no block.
func (s *session) receipt(hash string) (*receipt, error) {
	raw, err := s.call("eth_getTransactionReceipt", hash)
	if err != nil {
		return nil, err
	}
	r, err := decodeReceipt(raw, hash)
	if err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	return r, nil
}

// widths are how many blocks one search may cover, widest first: what
// providers are known to allow, from 10,000 down to 10 and one.
func widths() []uint64 { return []uint64{10_000, 5_000, 2_000, 1_000, 500, 100, 10, 1} }

// narrower says whether a search for logs that failed is worth trying again
// over fewer blocks, and sets how many. There are only as many tries as widths.
func (s *session) narrower(err error, width uint64) bool {
	if !tooMuch(err) {
		return false
	}
	for _, w := range widths() {
		if w < width {
			s.chunk = w
			return true
		}
	}
	return false
}

// tooMuch says whether a call failed in a way that asking for less may cure.
// What a provider says about too wide a range differs in code, text and HTTP
// status, so every refusal counts that is not about who we are or how often we
// ask.
func tooMuch(err error) bool {
	var refused *nodeError
	var status *statusError
	switch {
	case errors.As(err, &refused):
		return !barred(refused.status) && refused.code != http.StatusTooManyRequests
	case errors.As(err, &status):
		return status.status == http.StatusRequestEntityTooLarge
	}
	return errors.Is(err, errTooLong)
}

// barred says whether an HTTP status is about who we are or how often we ask.
func barred(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	}
	return false
}
