// Command go is a client with the official Go SDK. It lists the tools and asks one for its
// price. It pays with a payment from its command line, because the SDK has no wallet.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, tool, arguments, payment string) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	var tools []string
	for _, t := range list.Tools {
		tools = append(tools, t.Name)
	}
	params := &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)}
	unpaid, err := session.CallTool(ctx, params)
	if err != nil {
		return err
	}
	params.Meta = mcp.Meta{"x402/payment": json.RawMessage(payment), "x402/idempotency-key": rand.Text()}
	paid, err := session.CallTool(ctx, params)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"tools": tools, "unpaid": unpaid, "paid": paid})
}
