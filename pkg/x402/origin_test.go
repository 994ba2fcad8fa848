package x402

import "testing"

// The vector was made outside this code base, with key 1.
func TestCheckOrigin(t *testing.T) {
	const (
		payee = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf"
		proof = "0x0541d3571eb64b761bbc93345b0e9c1b825bf1e70b988d8205e39a67c6df6b286c2893c5c3adfdf6528d1c64f1a5287f53e6cebf58bfb94fb3d20240fdb535841c"
	)
	if err := CheckOrigin("https://api.example.com", proof, payee); err != nil {
		t.Error(err)
	}
	for name, c := range map[string][3]string{
		"slash":        {"https://api.example.com/", proof, payee},
		"other origin": {"https://api.example.org", proof, payee},
		"other payee":  {"https://api.example.com", proof, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"},
		"short":        {"https://api.example.com", proof[:130], payee},
		"v":            {"https://api.example.com", proof[:130] + "00", payee},
		"garbage":      {"https://api.example.com", "0x" + "ff00000000000000000000000000000000000000000000000000000000000000ff00000000000000000000000000000000000000000000000000000000000000001b", payee},
		"no payee":     {"https://api.example.com", proof, ""},
	} {
		if CheckOrigin(c[0], c[1], c[2]) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
