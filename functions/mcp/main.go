// Command mcp is the Lambda function that serves every operation as a tool of the Model
// Context Protocol, at /mcp.
package main

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/operations"
)

func main() {
	boot.Serve(func(c boot.Components) http.Handler { return c.Seller.MCP(operations.All(c)) })
}
