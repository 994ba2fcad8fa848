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

// maxReply limits how many bytes of a seller's reply are read.
const maxReply = 32 << 20

// newClient returns a client that opens a new connection for each request. On a reused
// connection that breaks, net/http may send a request twice.
func newClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		Timeout:   timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// client sends the requests of one payer.
type client struct {
	http   *http.Client
	goods  Goods
	way    Way
	origin string
}

// attempt is one request of a payer.
type attempt struct {
	payment   *payment // nil means that the request asks for the price
	key       string   // the header Idempotency-Key of the request; empty if it has none
	asksOther bool     // whether the request is for something else (Goods.otherRequest), and not for the purchase
}

// reply is a complete reply of the seller.
type reply struct {
	status int
	header http.Header
	body   []byte
	tool   *toolResult // the result of the tool call; nil if the reply has none
}

func (c *client) send(ctx context.Context, a attempt) (reply, error) {
	if c.way.isTool() {
		return c.callTool(ctx, a)
	}
	path, body := c.goods.Path, c.goods.Body
	if a.asksOther {
		path, body = c.goods.otherRequest()
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

// otherRequest returns the path and the body of a request for something else at the same
// price.
func (g Goods) otherRequest() (path, body string) {
	if g.OtherPath == "" && g.OtherBody == "" {
		mark := "?"
		if strings.Contains(g.Path, "?") {
			mark = "&"
		}
		return g.Path + mark + "judge=other", g.Body
	}
	return cmp.Or(g.OtherPath, g.Path), cmp.Or(g.OtherBody, g.Body)
}

// offer returns the offer in a reply.
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

// replyKind says what a reply means for the payer.
type replyKind int

const (
	kindAnswer   replyKind = iota
	kindUnpaid             // the seller asks for a payment: 402, or an offer as the result of a tool call
	kindWait               // the payer should ask again later
	kindConflict           // 409 without Retry-After
	kindError              // anything else
)

func (r reply) kind() replyKind {
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

// The shortest and the longest pause of a payer between two requests.
const (
	leastPause = 200 * time.Millisecond
	mostPause  = 5 * time.Second
)

// pause returns how long the payer waits: the time that the seller asks for, but at least
// leastPause and at most mostPause.
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

// sellerStatement is what the seller says about a payment in a reply.
type sellerStatement struct {
	text    string
	charged *bool // whether the seller said that it charged; nil if the seller did not say
}

// statement returns what the seller says about the payment in a reply.
func (r reply) statement() sellerStatement {
	said := sellerStatement{text: strconv.Itoa(r.status)}
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

// readCharged returns the member "charged" of an error, which says whether money has moved.
// ok is false if the error has no such member.
func readCharged(body []byte) (charged string, ok bool) {
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

// maxQuoted limits how many bytes of text from others are repeated in a report.
const maxQuoted = 80

// printable returns the printable ASCII characters of a text that comes from others, cut to
// maxQuoted bytes.
func printable(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
	return clean[:min(len(clean), maxQuoted)]
}
