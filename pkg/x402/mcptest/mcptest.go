// Package mcptest is a test client that pays for tool calls over the Model Context Protocol.
package mcptest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// ToolResult is the result of a tool call over the Model Context Protocol.
type ToolResult struct {
	Status     int             `json:"-"` // HTTP status
	Raw        []byte          `json:"-"` // the whole message that had the result, as it was received
	IsError    bool            `json:"isError"`
	Structured json.RawMessage `json:"structuredContent"`
	Content    []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Meta ToolMeta `json:"_meta"`
}

// ToolMeta is the _meta of a result. It has the data that an HTTP response has in headers.
// x402 defines Receipt. Each of the other members is specific to one service.
type ToolMeta struct {
	Receipt    *x402.SettleResponse `json:"x402/payment-response"`
	Replayed   bool                 `json:"hostfacts/replayed"`
	RetryAfter int                  `json:"hostfacts/retry-after"`
	Repeated   bool                 `json:"weather/replayed"` // the same as Replayed, in results of the shop in infra/shop
}

// Text returns the first text of the result, or an empty string if there is none.
func (r ToolResult) Text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

// Required returns the offer in a result that asks for a payment.
func (r ToolResult) Required() (x402.PaymentRequired, error) {
	var v x402.PaymentRequired
	if err := json.Unmarshal(r.Structured, &v); err != nil || v.X402Version == 0 {
		return v, fmt.Errorf("no offer: %s: %w", r.Raw, err)
	}
	return v, nil
}

// Call calls a tool of the server at url. If the argument header is not empty, it is the
// payment, in the form of the HTTP header PAYMENT-SIGNATURE. The call carries the payment as a
// JSON object, and not in base64 as that HTTP header does. If the argument key is not empty,
// it is the purchase key.
func Call(ctx context.Context, c *x402test.Client, url, tool string, args map[string]any, header, key string) (ToolResult, error) {
	meta := map[string]any{}
	if header != "" {
		payment, err := base64.StdEncoding.DecodeString(header)
		if err != nil {
			return ToolResult{}, err
		}
		meta["x402/payment"] = json.RawMessage(payment)
	}
	if key != "" {
		meta["x402/idempotency-key"] = key
	}
	params := map[string]any{"name": tool, "arguments": args, "_meta": meta}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
	if err != nil {
		return ToolResult{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return ToolResult{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := c.HTTP.Do(req)
	if err != nil {
		return ToolResult{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return ToolResult{}, err
	}
	var answer struct {
		Result *ToolResult `json:"result"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Result == nil {
		return ToolResult{Status: res.StatusCode, Raw: raw}, fmt.Errorf("no result of a call: %d %s: %w", res.StatusCode, raw, err)
	}
	answer.Result.Status = res.StatusCode
	answer.Result.Raw = raw
	return *answer.Result, nil
}

// SignCall asks for the price of a tool call, and signs a payment of that price. It returns
// the payment in the form of the HTTP header PAYMENT-SIGNATURE.
func SignCall(ctx context.Context, c *x402test.Client, url, tool string, args map[string]any) (header string, err error) {
	r, err := Call(ctx, c, url, tool, args, "", "")
	if err != nil {
		return "", err
	}
	required, err := r.Required()
	if err != nil {
		return "", err
	}
	return c.Wallet.Pay(required, c.Now())
}
