package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// sizes are how many requests may go into one message, most first: what
// providers are known to allow, down to those that take no batches.
func sizes() []int { return []int{50, 10, 3, 1} }

// errNoBatch says that a node does not answer a batch of this size. The session
// sends smaller ones from then on, so it is worth trying again.
var errNoBatch = errors.New("node does not answer a batch of this size")

// methodLogs is the search for logs.
const methodLogs = "eth_getLogs"

// query is a call that has not been made.
type query struct {
	method string
	params []any
}

// all makes several calls and returns their results in the same order, in as
// few messages as the node takes. See errNoBatch for the error that is none.
func (s *session) all(queries []query) ([]json.RawMessage, error) {
	var results []json.RawMessage
	for len(queries) > 0 {
		n := min(len(queries), s.size)
		part, err := s.some(queries[:n])
		if err != nil {
			return nil, err
		}
		results, queries = append(results, part...), queries[n:]
	}
	return results, nil
}

// some makes calls in one message. Providers differ in which methods they take
// in batches and how they say so; a single call shows what a refusal was about.
// A refused search is most likely about its range, so it is not held against
// the batch.
func (s *session) some(queries []query) ([]json.RawMessage, error) {
	if len(queries) > 1 {
		results, err := s.together(queries)
		var refused *nodeError
		no := errors.As(err, &refused) && tooMuch(err)
		if !errors.Is(err, errNoBatch) && !no {
			return results, err
		}
		if !no || queries[0].method != methodLogs {
			s.smaller(len(queries))
			return nil, errNoBatch
		}
	}
	results := make([]json.RawMessage, len(queries))
	for i, q := range queries {
		var err error
		if results[i], err = s.call(q.method, q.params...); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// smaller sets a batch size below one that failed.
func (s *session) smaller(failed int) {
	for _, n := range sizes() {
		if n < failed {
			s.size = n
			return
		}
	}
}

// together spends one of the permitted calls on a batch: it costs the node more
// than one, and us one round trip, which is what a run has few of.
func (s *session) together(queries []query) ([]json.RawMessage, error) {
	if s.calls <= 0 {
		return nil, errOutOfCalls
	}
	s.calls--
	return s.client.batch(s.ctx, s.most, queries)
}

// batch sends several requests in one message and returns their results in the
// same order. The limit is on the whole answer.
func (e *endpoint) batch(ctx context.Context, most int, queries []query) ([]json.RawMessage, error) {
	requests := make([]request, len(queries))
	for i, q := range queries {
		requests[i] = e.request(q.method, q.params)
	}
	status, body, err := e.exchange(ctx, most, requests)
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	replies, err := decodeBatch(status, body, requests)
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	return replies, nil
}

// decodeBatch checks the answer to a batch, in which the replies may have any
// order, and each request must have exactly one.
func decodeBatch(status int, body []byte, requests []request) ([]json.RawMessage, error) {
	if barred(status) {
		return nil, &statusError{status}
	}
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil || status != http.StatusOK || len(list) != len(requests) {
		return nil, errNoBatch
	}
	position := make(map[string]int, len(requests))
	for i, r := range requests {
		position[strconv.FormatUint(r.ID, 10)] = i
	}
	results := make([]json.RawMessage, len(requests))
	var failed error
	for _, reply := range list {
		o, err := parseObject(reply)
		if err != nil {
			return nil, err
		}
		at, asked := position[string(o["id"])]
		if !asked {
			return nil, fmt.Errorf("reply has id %s, which no request had or another reply has", excerpt(string(o["id"])))
		}
		delete(position, string(o["id"]))
		result, err := o.result(status, requests[at].ID)
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", requests[at].Method, err)
		}
		results[at] = result
	}
	if failed != nil {
		return nil, failed
	}
	return results, nil
}
