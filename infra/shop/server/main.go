// A shop that sells the weather for a cent, over HTTP and as a tool of the Model Context
// Protocol. FACILITATOR is the URL of who settles, and PAY_TO the account that is paid.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

func main() {
	ledger, err := file.Open(cmp.Or(os.Getenv("LEDGER_FILE"), "ledger.db"))
	if err != nil {
		log.Fatal(err)
	}
	seller, err := x402http.New(x402http.Config{PayTo: os.Getenv("PAY_TO"), Facilitator: os.Getenv("FACILITATOR"), Ledger: ledger, Name: "Weather"})
	if err != nil {
		log.Fatal(err)
	}
	weather := seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"city":%q,"weather":"fair"}`, r.URL.Query().Get("city"))
	}), x402http.Describe("The weather of a city.", "application/json"))
	http.Handle("GET /weather", weather)
	http.Handle("POST /mcp", seller.MCP("weather", "1.0", x402http.MCPTool{
		Endpoint: weather, Path: "/weather", Name: "weather", Description: "The weather of a city.",
		Params: []x402http.Param{{Name: "city", Description: "Name of the city.", Required: true}},
	}))
	log.Fatal(http.ListenAndServe(cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8403"), nil))
}
