package x402http

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// TestArguments checks which arguments a parameter accepts, and the text of each. An integer
// may have any notation that JSON Schema allows, and a number or a boolean may be given as a
// string. A number is refused where a string is expected.
func TestArguments(t *testing.T) {
	port, domain := Param{Name: "port", Type: "integer"}, Param{Name: "domain"}
	rate, deep := Param{Name: "rate", Type: "number"}, Param{Name: "deep", Type: "boolean"}
	get := anySeller(t).Sell("1", http.NotFoundHandler())
	for _, c := range []struct {
		param Param
		value any
		want  string // the text of the argument, or the error
	}{
		{port, json.Number("443.0"), "443"}, {port, json.Number("4.43e2"), "443"}, {port, json.Number("443.5"), "443.5"},
		{port, json.Number("1e400"), "1e400"}, {port, json.Number("12345678901234567890"), "12345678901234567890"}, {port, "443", "443"},
		{port, true, "The argument port must be an integer."}, {domain, "example.com", "example.com"},
		{domain, json.Number("7"), "The argument domain must be a string."},
		{domain, []any{"example.com"}, "The argument domain must be a string."},
		{rate, json.Number("0.5"), "0.5"}, {rate, json.Number("2"), "2"}, {rate, false, "The argument rate must be a number."},
		{deep, true, "true"}, {deep, "false", "false"}, {deep, json.Number("1"), "The argument deep must be a boolean."},
		{deep, map[string]any{}, "The argument deep must be a boolean."},
	} {
		t.Run(fmt.Sprintf("%s, %T %v", c.param.Name, c.value, c.value), func(t *testing.T) {
			tool := Tool{Endpoint: get, Path: "/", Params: []Param{c.param}}
			target, _, err := tool.request(map[string]any{c.param.Name: c.value})
			got := target.Query().Get(c.param.Name)
			if err != nil {
				got = fault.From(err).Public()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// anySeller returns a seller for tests in which nobody pays.
func anySeller(t *testing.T) *Seller {
	t.Helper()
	seller, err := New(Config{
		PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Facilitator: "http://127.0.0.1:1", Ledger: &ledgertest.Memory{}, NoNode: true, Origin: "https://shop.example",
	})
	if err != nil {
		t.Fatal(err)
	}
	return seller
}

// TestCheapest checks that a seller knows the lowest of its prices. Money that arrives without
// a request must be refunded only if it is at least that price.
func TestCheapest(t *testing.T) {
	seller := anySeller(t)
	for _, price := range []string{"1", "0.5", "0.7"} {
		seller.Sell(price, http.NotFoundHandler())
	}
	if seller.cheapest.Int64() != 500_000 {
		t.Errorf("the lowest price is %s", seller.cheapest)
	}
}
