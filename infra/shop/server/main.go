// Command server is a shop that sells the weather of a city and takes reports of the weather.
// Each costs a cent, over HTTP or as an MCP tool. The shop reads these environment variables:
//
//   - PAY_TO, the account that is paid
//   - FACILITATOR, the URL of the facilitator
//   - WINDOW, how long the shop returns the stored answer to a repeated request that has no
//     idempotency key, by default 45s
//   - LEDGER_FILE, the path of the ledger, by default ledger.db
//   - LEDGER_ACCEPT, the word that makes the server accept a ledger that it has refused as
//     incomplete
//   - ADDR, the address to listen on, by default 127.0.0.1:8403
//   - ORIGIN, the public origin, by default http://ADDR
//   - NODE, the URL of a node of Base that replaces the public node, or "none" for no node
//   - STATION, the URL of a service that knows the weather; without it, the weather is always
//     fair
//   - PRICE, the price of each answer in dollars, by default 0.01
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

func main() {
	addr := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8403")
	config := x402http.Config{
		PayTo: os.Getenv("PAY_TO"), Facilitator: os.Getenv("FACILITATOR"), Origin: cmp.Or(os.Getenv("ORIGIN"), "http://"+addr),
		Ledger: must(file.Open(cmp.Or(os.Getenv("LEDGER_FILE"), "ledger.db"), file.Accept(os.Getenv("LEDGER_ACCEPT")))), Name: "Weather",
		Window: must(time.ParseDuration(cmp.Or(os.Getenv("WINDOW"), "45s"))),
	}
	switch node := os.Getenv("NODE"); node {
	case "":
	case "none":
		config.NoNode = true
	default:
		usdc := x402.USDC()
		config.Evidence = must(chain.New(chain.Config{URLs: []string{node}, Network: usdc.Network, Asset: usdc.Asset}))
	}
	seller := must(x402http.New(config))
	price := cmp.Or(os.Getenv("PRICE"), "0.01")
	weather := seller.Sell(price, station(os.Getenv("STATION")), x402http.Describe("The weather of a city.", "application/json"))
	report := seller.Sell(price, http.HandlerFunc(takeReport), x402http.Post(maxReport), x402http.Check(checkReport),
		x402http.Describe("Takes a report of the weather.", "application/json"))
	http.Handle("GET /weather", weather)
	http.Handle("POST /report", report)
	city := x402http.Param{Name: "city", Description: "Name of the city.", Required: true}
	http.Handle("POST /mcp", seller.MCP("weather", "1.0", http.DefaultServeMux, x402http.Tool{
		Endpoint: weather, Path: "/weather", Name: "weather", Description: "The weather of a city.", Params: []x402http.Param{city},
	}, x402http.Tool{
		Endpoint: report, Path: "/report", Name: "report", Description: "Takes a report of the weather of a city.",
		Params: []x402http.Param{city, {Name: "notes", Description: "What was seen.", Required: true}},
	}))
	log.Fatal(http.ListenAndServe(addr, nil))
}

// station is the URL of a service that knows the weather. If the URL is empty, the weather is
// always fair.
type station string

// ServeHTTP answers with the weather of a city. If the station does not tell the weather, the
// response is a 503, and the payer is owed the answer.
func (s station) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	city := r.URL.Query().Get("city")
	weather, err := s.ask(r, city)
	if err != nil {
		log.Print(err)
		http.Error(w, "The station does not answer.", http.StatusServiceUnavailable)
		return
	}
	answer(w, map[string]any{"city": city, "weather": weather})
}

// maxWeather limits how much of a station's answer is read, in bytes.
const maxWeather = 100

func (s station) ask(r *http.Request, city string) (weather string, err error) {
	if s == "" {
		return "fair", nil
	}
	asked, err := http.NewRequestWithContext(r.Context(), http.MethodGet, string(s)+"?city="+url.QueryEscape(city), nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(asked)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the station says %s", res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxWeather))
	return string(text), err
}

// maxReport is the maximum size of a report, in bytes.
const maxReport = 2 << 20

// weatherReport is a report of the weather. A client sends the report as JSON, or as a form,
// in which the notes may be a file.
type weatherReport struct{ City, Notes string }

func readReport(r *http.Request) (weatherReport, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return weatherReport{}, err
	}
	var p weatherReport
	switch mediaType {
	case "application/json":
		err = json.NewDecoder(r.Body).Decode(&p)
	case "application/x-www-form-urlencoded":
		p = weatherReport{r.PostFormValue("city"), r.PostFormValue("notes")}
	case "multipart/form-data":
		p.City = r.FormValue("city")
		p.Notes, err = readFile(r, "notes")
	}
	if err == nil && p.City == "" {
		err = errors.New("the report names no city")
	}
	return p, err
}

func readFile(r *http.Request, field string) (string, error) {
	f, _, err := r.FormFile(field)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	return string(text), err
}

// checkReport refuses a request without a valid report before anything is charged.
func checkReport(w http.ResponseWriter, r *http.Request) {
	if _, err := readReport(r); err != nil {
		x402http.Refuse(w, http.StatusBadRequest, "Send city and notes, as JSON or as a form.")
	}
}

// takeReport answers with the city and the size of a report. checkReport has read the same
// request before, so an error is not expected.
func takeReport(w http.ResponseWriter, r *http.Request) {
	p, err := readReport(r)
	if err != nil {
		http.Error(w, "The report cannot be read.", http.StatusInternalServerError)
		return
	}
	answer(w, map[string]any{"city": p.City, "bytes": len(p.Notes)})
}

func answer(w http.ResponseWriter, what map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // w is a buffer: the library stores the answer before it sends the answer to the client
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
