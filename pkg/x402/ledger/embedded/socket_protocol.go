package embedded

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The protocol is one POST of JSON for each call of ledger.Store, ledger.Index,
// ledger.Payers and ledger.Rows. Records travel in the form that the stores keep, so
// that whoever reads one checks it as it checks what a store gives. Every rule is on
// the client's side, in ledger.Ledger, as it is with DynamoDB; the versions keep it
// and the service apart.

// Served is what is served, and what a Client is.
type Served interface {
	ledger.Store
	ledger.Index
	ledger.Payers
	ledger.Rows
}

const (
	// maxRequest bounds a request: a record of 400 KB in base64.
	maxRequest = 1 << 20
	// maxListed bounds what one call lists, and maxReply a reply, which that many
	// keys of 2 KB fit into.
	maxListed = 20_000
	maxReply  = 64 << 20
	// maxPage bounds the records of a page: of 400 KB each, in base64, they fit into
	// a reply too.
	maxPage = 100
	// maxPath is what a socket's path may be on every system.
	maxPath = 103
	// callTime bounds a call of a Client, and listTime one that reads the whole
	// file.
	callTime = 10 * time.Second
	listTime = time.Minute
)

// SocketPath is where the ledger in a file is served: in a folder of its own beside it.
func SocketPath(ledgerFile string) string { return filepath.Join(ledgerFile+".run", "socket") }

// request is a call. Bytes, also keys, travel in base64: JSON would change what is
// no UTF-8, and a key that was changed is another payment's.
type request struct {
	Verb   string    `json:"verb"`
	Key    []byte    `json:"key,omitempty"` // or the prefix, or that of a place
	At     time.Time `json:"at,omitzero"`   // of a place
	Record *message  `json:"record,omitempty"`
	Before time.Time `json:"before,omitzero"`
	Limit  int       `json:"limit,omitempty"`
}

// The verbs.
const (
	verbCreate  = "create"
	verbReplace = "replace"
	verbFetch   = "fetch"
	verbOpen    = "open" // Key and At are the place that it comes after
	verbOwed    = "owed" // the same
	verbByPayer = "by_payer"
	verbPage    = "page" // Key is what it comes after
)

// reply is what a call came to. Fault is set when it failed.
type reply struct {
	Record *message `json:"record,omitempty"`
	Keys   [][]byte `json:"keys,omitempty"`
	// At are the times of places, whose keys are in Keys.
	At []time.Time `json:"at,omitempty"`
	// Page is what a page has, with its corrupt rows in Keys.
	Page  []*message `json:"page,omitempty"`
	Next  []byte     `json:"next,omitempty"`
	Fault string     `json:"fault,omitempty"`
	// Kind is what callers tell apart: conflict or corrupt.
	Kind string `json:"kind,omitempty"`
}

const (
	kindConflict = "conflict"
	kindCorrupt  = "corrupt"
)

// message is a record in its stored form.
type message struct {
	Doc  []byte `json:"doc"`
	Body []byte `json:"body,omitempty"`
}

// messageOf refuses what could not be read back, as every store does.
func messageOf(r ledger.Record) (*message, error) {
	doc, body, err := r.Marshal()
	if err != nil {
		return nil, err
	}
	if back, err := ledger.Unmarshal(doc, body); err != nil || back.Key != r.Key {
		// Not %w: nothing that is stored is corrupt.
		return nil, fmt.Errorf("embedded: refusing to write what could not be read back: %v", err) //nolint:errorlint // nothing stored is corrupt
	}
	return &message{Doc: doc, Body: body}, nil
}

func (m *message) unpack() (*ledger.Record, error) {
	if m == nil {
		return nil, nil
	}
	return ledger.Unmarshal(m.Doc, m.Body)
}

// failure is an error on its way to the other side.
func failure(err error) reply {
	r := reply{Fault: err.Error()}
	switch {
	case errors.Is(err, ledger.ErrConflict):
		r.Kind = kindConflict
	case errors.Is(err, ledger.ErrCorrupt):
		r.Kind = kindCorrupt
	}
	return r
}

func (r reply) err() error {
	switch {
	case r.Fault == "":
		return nil
	case r.Kind == kindConflict:
		return ledger.ErrConflict
	case r.Kind == kindCorrupt:
		return fmt.Errorf("%w (%s)", ledger.ErrCorrupt, r.Fault)
	}
	return errors.New("embedded: " + r.Fault)
}

// answer is one call on the server's side.
func (q request) answer(ctx context.Context, s Served) (reply, error) {
	switch limit := min(q.Limit, maxListed); q.Verb {
	case verbCreate, verbReplace:
		return q.write(ctx, s)
	case verbFetch:
		r, err := s.Fetch(ctx, string(q.Key))
		return found(r, err)
	case verbOpen:
		return placed(s.Open(ctx, q.Before, q.after(), limit))
	case verbOwed:
		return placed(s.Owed(ctx, q.after(), limit))
	case verbByPayer:
		return listed(s.ByPayer(ctx, string(q.Key), limit))
	case verbPage:
		return paged(s.Page(ctx, string(q.Key), min(q.Limit, maxPage)))
	}
	return reply{}, fmt.Errorf("unknown verb %q", q.Verb)
}

func (q request) write(ctx context.Context, s Served) (reply, error) {
	if q.Record == nil {
		return reply{}, errors.New("there is no record")
	}
	r, err := q.Record.unpack()
	switch {
	case err != nil:
		return reply{}, fmt.Errorf("not a record: %v", err) //nolint:errorlint // nothing stored is corrupt
	case q.Verb == verbReplace:
		return reply{}, s.Replace(ctx, *r)
	}
	held, err := s.Create(ctx, *r)
	return found(held, err)
}

func found(r *ledger.Record, err error) (reply, error) {
	if err != nil || r == nil {
		return reply{}, err
	}
	m, err := messageOf(*r)
	return reply{Record: m}, err
}

func listed(keys []string, err error) (reply, error) {
	var r reply
	for _, k := range keys {
		r.Keys = append(r.Keys, []byte(k))
	}
	return r, err
}

// after is the place that a request names.
func (q request) after() ledger.Place { return ledger.Place{At: q.At, Key: string(q.Key)} }

func placed(places []ledger.Place, err error) (reply, error) {
	var r reply
	for _, p := range places {
		r.Keys, r.At = append(r.Keys, []byte(p.Key)), append(r.At, p.At)
	}
	return r, err
}

func paged(p ledger.Page, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	r, err := listed(p.Corrupt, nil)
	r.Next = []byte(p.Next)
	for _, record := range p.Records {
		m, failed := messageOf(record.Bodiless())
		if failed != nil {
			return reply{}, failed
		}
		r.Page = append(r.Page, m)
	}
	return r, err
}
