package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ErrNobody says that no service answers at a socket.
var ErrNobody = errors.New("no service answers at the socket")

// Client is the ledger of a service that runs on this machine.
type Client struct{ http *http.Client }

var _ Served = (*Client)(nil)

// Dial returns a client of the service that serves a ledger file's store.
// ErrNobody says that there is none.
func Dial(ctx context.Context, ledgerFile string) (*Client, error) {
	path, err := short(SocketPath(ledgerFile))
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	conn, err := dial(ctx, "", "")
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNobody, err)
	}
	conn.Close()
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: dial, MaxIdleConnsPerHost: 8, MaxConnsPerHost: 8, DisableCompression: true,
	}}}, nil
}

// Close ends the connections that are idle.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Create implements ledger.Store.
func (c *Client) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	return c.write(ctx, verbCreate, r)
}

// Replace implements ledger.Store.
func (c *Client) Replace(ctx context.Context, r ledger.Record) error {
	_, err := c.write(ctx, verbReplace, r)
	return err
}

func (c *Client) write(ctx context.Context, verb string, r ledger.Record) (*ledger.Record, error) {
	m, err := messageOf(r)
	if err != nil {
		return nil, err
	}
	return c.record(ctx, request{Verb: verb, Record: m}, r.Key)
}

// Fetch implements ledger.Store.
func (c *Client) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	return c.record(ctx, request{Verb: verbFetch, Key: []byte(key)}, key)
}

// Open implements ledger.Index.
func (c *Client) Open(ctx context.Context, before time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	return c.places(ctx, request{Verb: verbOpen, Before: before, Key: []byte(after.Key), At: after.At, Limit: limit})
}

// Owed implements ledger.Index.
func (c *Client) Owed(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error) {
	return c.places(ctx, request{Verb: verbOwed, Key: []byte(after.Key), At: after.At, Limit: limit})
}

func (c *Client) places(ctx context.Context, q request) ([]ledger.Place, error) {
	p, err := c.call(ctx, listTime, q)
	if err != nil {
		return nil, err
	}
	if len(p.At) != len(p.Keys) {
		return nil, fmt.Errorf("embedded: %s: %d times of %d keys", q.Verb, len(p.At), len(p.Keys))
	}
	var places []ledger.Place
	for i, k := range p.Keys {
		places = append(places, ledger.Place{At: p.At[i], Key: string(k)})
	}
	return places, nil
}

// ByPayer implements ledger.Payers.
func (c *Client) ByPayer(ctx context.Context, prefix string, limit int) ([]string, error) {
	return c.keys(ctx, request{Verb: verbByPayer, Key: []byte(prefix), Limit: limit})
}

// Page implements ledger.Rows.
func (c *Client) Page(ctx context.Context, after string, limit int) (ledger.Page, error) {
	if limit <= 0 {
		return ledger.Page{}, ctx.Err()
	}
	p, err := c.call(ctx, listTime, request{Verb: verbPage, Key: []byte(after), Limit: limit})
	if err != nil {
		return ledger.Page{}, err
	}
	page := ledger.Page{Next: string(p.Next)}
	for _, k := range p.Keys {
		page.Corrupt = append(page.Corrupt, string(k))
	}
	for _, m := range p.Page {
		r, err := m.unpack()
		if err != nil || r == nil {
			return ledger.Page{}, fmt.Errorf("embedded: page: what is no record: %w", err)
		}
		page.Records = append(page.Records, *r)
	}
	return page, nil
}

func (c *Client) record(ctx context.Context, q request, key string) (*ledger.Record, error) {
	p, err := c.call(ctx, callTime, q)
	if err != nil {
		return nil, err
	}
	r, err := p.Record.unpack()
	if err == nil && r != nil && r.Key != key {
		return nil, fmt.Errorf("%w: it belongs to another key", ledger.ErrCorrupt)
	}
	return r, err
}

func (c *Client) keys(ctx context.Context, q request) ([]string, error) {
	p, err := c.call(ctx, listTime, q)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, k := range p.Keys {
		keys = append(keys, string(k))
	}
	return keys, nil
}

func (c *Client) call(ctx context.Context, most time.Duration, q request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return reply{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://ledger.invalid/", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return reply{}, fmt.Errorf("embedded: %s: %w", q.Verb, err)
	}
	defer res.Body.Close()
	var p reply
	if err := json.NewDecoder(io.LimitReader(res.Body, maxReply)).Decode(&p); err != nil {
		return reply{}, fmt.Errorf("embedded: %s: the service answered with status %d and no reply: %w", q.Verb, res.StatusCode, err)
	}
	return p, p.err()
}
