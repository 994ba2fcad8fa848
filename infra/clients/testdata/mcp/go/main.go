// The client of the official Go SDK. It lists the tools, asks one for its price,
// prints what it got, and pays with the payment that it reads from its standard
// input: a wallet is somebody else's affair.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, tool, arguments string) error {
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
	out := json.NewEncoder(os.Stdout)
	call := func(payment json.RawMessage) error {
		params := &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)}
		if payment != nil {
			params.Meta = mcp.Meta{"x402/payment": payment}
		}
		result, err := session.CallTool(ctx, params)
		if err != nil {
			return err
		}
		return out.Encode(map[string]any{"tools": len(list.Tools), "result": result})
	}
	if err := call(nil); err != nil {
		return err
	}
	var payment json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&payment); err != nil {
		return err
	}
	return call(payment)
}
