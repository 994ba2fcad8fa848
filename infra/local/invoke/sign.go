package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// signed is an event with the payment that an answer asks for, by a payer whose key is
// made here and forgotten. It is nil for an answer that asks for none.
func signed(event, answer []byte, now time.Time) ([]byte, error) {
	var resp events.APIGatewayV2HTTPResponse
	_ = json.Unmarshal(answer, &resp) // what is not an HTTP answer asks for nothing
	var tool struct {
		Result struct {
			StructuredContent x402.PaymentRequired
		}
	}
	required := &tool.Result.StructuredContent
	if resp.StatusCode == http.StatusPaymentRequired {
		raw, err := base64.StdEncoding.DecodeString(resp.Headers[strings.ToLower(x402.HeaderRequired)])
		if err == nil {
			err = json.Unmarshal(raw, required)
		}
		if err != nil {
			return nil, fmt.Errorf("read the offer: %w", err)
		}
	} else {
		text, zipped := unzipped(resp)
		if !zipped {
			text = resp.Body
		}
		_ = json.Unmarshal([]byte(text), &tool) // nor does what is not an answer of a tool
	}
	if len(required.Accepts) == 0 {
		return nil, nil
	}
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return nil, err
	}
	header, err := wallet.Pay(*required, now)
	if err != nil {
		return nil, fmt.Errorf("sign the offer: %w", err)
	}
	var e map[string]any
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	headers, _ := e["headers"].(map[string]any)
	if headers == nil {
		headers = map[string]any{}
		e["headers"] = headers
	}
	if resp.StatusCode == http.StatusPaymentRequired {
		headers[strings.ToLower(x402.HeaderSignature)] = header
		return json.Marshal(e)
	}
	body, err := toolCall(e["body"], header)
	e["body"], headers["content-length"] = body, strconv.Itoa(len(body))
	if err != nil {
		return nil, fmt.Errorf("read the event's body: %w", err)
	}
	return json.Marshal(e)
}

// toolCall is a call of a tool over MCP, with a payment in its _meta.
func toolCall(body any, header string) (string, error) {
	text, _ := body.(string)
	var call map[string]any
	if err := json.Unmarshal([]byte(text), &call); err != nil {
		return "", err
	}
	payment, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return "", err
	}
	params, _ := call["params"].(map[string]any)
	meta, ok := params["_meta"].(map[string]any)
	if !ok {
		return "", fmt.Errorf("it has no params._meta")
	}
	meta["x402/payment"] = json.RawMessage(payment)
	out, err := json.Marshal(call)
	return string(out), err
}
