package judge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// maxReply bounds what is read of a seller, in bytes.
const maxReply = 32 << 20

// newClient is a client that opens a connection for each request: one that is used again may
// have a request sent twice by the library, when it breaks.
func newClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		Timeout:   timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// client sends the requests of a payer.
type client struct {
	http   *http.Client
	goods  Goods
	way    Way
	origin string
}

// attempt is one request.
type attempt struct {
	payment *payment // nil asks for the price
	key     string   // Idempotency-Key
	other   bool     // asks for something else
}

// reply is what came back, read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
	tool   *toolResult // over the Model Context Protocol
}

// send sends one request.
func (c *client) send(ctx context.Context, a attempt) (reply, error) {
	if c.way.isTool() {
		return c.call(ctx, a)
	}
	path, body := c.goods.Path, c.goods.Body
	if a.other {
		path, body = c.goods.other()
	}
	r, err := http.NewRequestWithContext(ctx, c.goods.Method, c.origin+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Accept", "application/json")
	if c.goods.ContentType != "" {
		r.Header.Set("Content-Type", c.goods.ContentType)
	}
	if a.key != "" {
		r.Header.Set(x402.HeaderKey, a.key)
	}
	if a.payment != nil {
		r.Header.Set(x402.HeaderSignature, a.payment.header())
	}
	return c.do(r)
}

func (c *client) do(r *http.Request) (reply, error) {
	res, err := c.http.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	return reply{status: res.StatusCode, header: res.Header, body: body}, err
}

// other is what asks for something else.
func (g Goods) other() (path, body string) {
	if g.OtherPath == "" && g.OtherBody == "" {
		mark := "?"
		if strings.Contains(g.Path, "?") {
			mark = "&"
		}
		return g.Path + mark + "judge=other", g.Body
	}
	return cmp.Or(g.OtherPath, g.Path), cmp.Or(g.OtherBody, g.Body)
}

// offer reads what a reply asks for.
func (r reply) offer(network string) (offer, error) {
	if r.tool != nil {
		return readOffer(r.tool.Structured, network)
	}
	if r.status != http.StatusPaymentRequired {
		return offer{}, fmt.Errorf("it answered %d", r.status)
	}
	raw, err := decodeHeader(r.header.Get(x402.HeaderRequired))
	if err != nil {
		return offer{}, fmt.Errorf("the header %s: %w", x402.HeaderRequired, err)
	}
	return readOffer(raw, network)
}

// kind is what a reply means to its payer.
type kind int

const (
	kindAnswer   kind = iota
	kindUnpaid        // 402: this payment buys nothing
	kindWait          // it says to ask again later
	kindConflict      // 409 without a word about later
	kindError         // anything else
)

func (r reply) kind() kind {
	if r.tool != nil {
		return r.tool.kind()
	}
	switch {
	case r.status >= 200 && r.status < 300:
		return kindAnswer
	case r.status == http.StatusPaymentRequired:
		return kindUnpaid
	case r.header.Get("Retry-After") != "":
		return kindWait
	case r.status == http.StatusConflict:
		return kindConflict
	}
	return kindError
}

// Bounds of the pause that a payer makes.
const (
	leastPause = 200 * time.Millisecond
	mostPause  = 5 * time.Second
)

// pause is how long the seller asks to wait, within bounds.
func (r reply) pause() time.Duration {
	seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
	if r.tool != nil {
		seconds, err = r.tool.retryAfter(), nil
	}
	if err != nil {
		return leastPause
	}
	return min(max(time.Duration(seconds)*time.Second, leastPause), mostPause)
}

// word is what a seller said about one payment.
type word struct {
	text    string
	charged *bool // what it said about the money; nil where it said nothing
}

// word reads what a reply says.
func (r reply) word() word {
	said := word{text: strconv.Itoa(r.status)}
	body := r.body
	receipt, err := decodeHeader(r.header.Get(x402.HeaderResponse))
	if r.tool != nil {
		said.text = r.tool.status()
		body = []byte(r.tool.text())
		receipt = r.tool.receipt()
		err = nil
	}
	var settled struct {
		Success     *bool  `json:"success"`
		ErrorReason string `json:"errorReason"`
	}
	if err == nil && json.Unmarshal(receipt, &settled) == nil && settled.Success != nil {
		said.text += ", receipt success:" + strconv.FormatBool(*settled.Success)
		if settled.ErrorReason != "" {
			said.text += " " + printable(settled.ErrorReason)
		}
		if *settled.Success {
			said.charged = settled.Success
		}
	}
	if charged, told := readCharged(body); told {
		said.text += ", charged:" + charged
		if value, err := strconv.ParseBool(charged); err == nil {
			said.charged = &value
		}
	}
	return said
}

// readCharged finds the member charged of an error, which says whether money has moved.
func readCharged(body []byte) (charged string, told bool) {
	type charge struct {
		Charged json.RawMessage `json:"charged"`
	}
	var b struct {
		charge
		Error charge `json:"error"`
	}
	if json.Unmarshal(body, &b) != nil {
		return "", false
	}
	raw := b.Error.Charged
	if len(raw) == 0 {
		raw = b.Charged
	}
	raw = bytes.Trim(raw, `"`)
	return printable(string(raw)), len(raw) > 0
}

// maxWord bounds what is repeated of a seller's words, in bytes.
const maxWord = 80

// printable is what may be printed of a text of others.
func printable(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
	return clean[:min(len(clean), maxWord)]
}
