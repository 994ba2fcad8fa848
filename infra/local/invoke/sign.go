package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// signEvent returns the event with the payment that the answer requires. A throwaway key signs
// the payment. If the answer requires no payment, signEvent returns nil.
func signEvent(event, answer []byte, now time.Time) ([]byte, error) {
	var resp events.APIGatewayV2HTTPResponse
	var offered struct {
		x402.PaymentRequired // the offer in the body of a 402
		Result               struct {
			StructuredContent x402.PaymentRequired // the offer in the result of a tool
		}
	}
	_ = json.Unmarshal(answer, &resp) // an answer that is not HTTP or not JSON requires no payment
	text, _ := textOf(resp)
	_ = json.Unmarshal([]byte(text), &offered)
	required := offered.PaymentRequired
	byTool := resp.StatusCode != http.StatusPaymentRequired
	if byTool {
		required = offered.Result.StructuredContent
	}
	if len(required.Accepts) == 0 {
		return nil, nil
	}
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return nil, err
	}
	header, err := wallet.Pay(required, now)
	if err != nil {
		return nil, fmt.Errorf("sign the offer: %w", err)
	}
	var e map[string]any
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	headers, ok := e["headers"].(map[string]any)
	if !ok {
		return nil, errors.New("the event has no headers")
	}
	if !byTool {
		headers[strings.ToLower(x402.HeaderSignature)] = header
		return json.Marshal(e)
	}
	body, err := addToolPayment(fmt.Sprint(e["body"]), header)
	if err != nil {
		return nil, fmt.Errorf("read the event's body: %w", err)
	}
	e["body"] = body
	headers["content-length"] = strconv.Itoa(len(body))
	return json.Marshal(e)
}

// addToolPayment puts the payment of a header into the _meta of an MCP tool call, and returns
// the changed body.
func addToolPayment(body, header string) (string, error) {
	payment, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return "", err
	}
	var call map[string]any
	if err := json.Unmarshal([]byte(body), &call); err != nil {
		return "", err
	}
	params, _ := call["params"].(map[string]any)
	meta, ok := params["_meta"].(map[string]any)
	if !ok {
		return "", errors.New("it has no params._meta")
	}
	meta["x402/payment"] = json.RawMessage(payment)
	out, err := json.Marshal(call)
	return string(out), err
}
