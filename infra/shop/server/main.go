// A shop that sells the weather for a cent, over HTTP and as an MCP tool. It reads PAY_TO,
// FACILITATOR (a URL), WINDOW (how long an answer stands without a key), LEDGER_FILE, ADDR,
// LEDGER_ACCEPT (the word for a ledger that was refused as a part of one), NODE (none for no
// node), and ORIGIN, which is http://ADDR unless it is set.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

func main() {
	addr := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8403")
	seller := must(x402http.New(x402http.Config{
		PayTo: os.Getenv("PAY_TO"), Facilitator: os.Getenv("FACILITATOR"), Origin: cmp.Or(os.Getenv("ORIGIN"), "http://"+addr),
		NoNode: os.Getenv("NODE") == "none",
		Ledger: must(file.Open(cmp.Or(os.Getenv("LEDGER_FILE"), "ledger.db"), file.Accept(os.Getenv("LEDGER_ACCEPT")))), Name: "Weather",
		Window: must(time.ParseDuration(cmp.Or(os.Getenv("WINDOW"), "45s"))),
	}))
	weather := seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"city":%q,"weather":"fair"}`, r.URL.Query().Get("city"))
	}), x402http.Describe("The weather of a city.", "application/json"))
	http.Handle("GET /weather", weather)
	http.Handle("POST /mcp", seller.MCP("weather", "1.0", http.DefaultServeMux, x402http.Tool{
		Endpoint: weather, Path: "/weather", Name: "weather", Description: "The weather of a city.",
		Params: []x402http.Param{{Name: "city", Description: "Name of the city.", Required: true}},
	}))
	log.Fatal(http.ListenAndServe(addr, nil))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
