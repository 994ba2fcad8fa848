package discovery

import (
	"fmt"
	"html"
	"io/fs"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// snippet is a program that calls the first operation of the catalog. What is
// shown is a file of assets/snippets with this deployment's values in place of
// the documented ones, and infra/snippets runs it as shown.
type snippet struct {
	ID      string // anchor on the page
	Title   string
	Name    string // what to save it as
	Install string // commands before it; empty: none
	Run     string // the command that runs it; empty: it is one itself
	Text    string // what to know about it, with `code`
	Code    string
	file    string
	comment string // what starts a comment in it
}

// The documented values of the files, which a deployment's own replace.
const (
	documentedOrigin  = "https://api.example.com"
	documentedNetwork = "eip155:8453"
	documentedAsset   = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
)

func snippetList() []snippet {
	return []snippet{
		{
			ID: "curl", Title: "curl", Name: "The offer, with curl", file: "offer.sh", comment: "#",
			Text: "Asks what a call costs. It is free, and answers 402 with the offer. `curl` alone cannot pay, because it cannot sign.",
		},
		{
			ID: "typescript", Title: "TypeScript", Name: "pay.mts", file: "pay.mts", comment: "//",
			Install: "npm install @x402/fetch@2.27.0 @x402/evm@2.27.0 viem@2.57.0 tsx",
			Run:     "PRIVATE_KEY=0x… npx tsx pay.mts",
			Text:    "The official client as it comes: it pays only with USDC, and at most $1 per call.",
		},
		{
			ID: "retries", Title: "With retries", Name: "retry.mts", file: "retry.mts", comment: "//",
			Install: "npm install @x402/fetch@2.27.0 @x402/evm@2.27.0 viem@2.57.0 tsx",
			Run:     "PRIVATE_KEY=0x… npx tsx retry.mts",
			Text:    "The same client, asking until it has the answer, whatever is lost on the way. One `Idempotency-Key` makes all attempts one purchase, which is charged once; a new key asks anew.",
		},
		{
			ID: "python", Title: "Python", Name: "pay.py", file: "pay.py", comment: "#",
			Install: "pip install 'x402[evm,requests]==2.25.0'",
			Run:     "PRIVATE_KEY=0x… python pay.py",
			Text:    "The official client as it comes: it pays only with USDC, and at most $1 per call.",
		},
		{
			ID: "go", Title: "Go", Name: "main.go", file: "pay.go.txt", comment: "//",
			Install: "go mod init pay && go get github.com/decred/dcrd/dcrec/secp256k1/v4@v4.4.1 golang.org/x/crypto@v0.58.0",
			Run:     "PRIVATE_KEY=0x… go run .",
			Text:    "The whole handshake without an x402 library: what to check in an offer, what to hash, what to sign.",
		},
		{
			ID: "signed", Title: "A prepared signature", Name: "Sending a signature, with curl", file: "send.sh", comment: "#",
			Text: "Sends a `PAYMENT-SIGNATURE` that something else has made, and may be repeated: the same answer comes back and nothing is charged.",
		},
	}
}

// snippets are the programs as a site shows them.
func snippets(s Site) ([]snippet, error) { return programs(s, snippetList()) }

// programs are those of a list with the values of a site.
func programs(s Site, list []snippet) ([]snippet, error) {
	own := strings.NewReplacer(documentedOrigin, s.Origin, documentedNetwork, s.Terms.Network, documentedAsset, s.Terms.Asset)
	call := catalog.All()[0].ExampleURL(s.Origin)
	for i := range list {
		raw, err := fs.ReadFile(assets, "assets/snippets/"+list[i].file)
		if err != nil {
			return nil, err
		}
		list[i].Code = strings.TrimSuffix(own.Replace(string(raw)), "\n")
		if !strings.Contains(list[i].Code, call) {
			return nil, fmt.Errorf("snippet %s does not call %s", list[i].file, call)
		}
	}
	return list, nil
}

// HTML is the program as HTML: comments and strings in spans, all escaped.
func (s snippet) HTML() string {
	var b strings.Builder
	for code := s.Code; code != ""; {
		class, n := "", plainEnd(code, s.comment)
		switch {
		case strings.HasPrefix(code, s.comment):
			class, n = "c", lineEnd(code)
		case strings.IndexByte("\"'`", code[0]) >= 0:
			class, n = "s", stringEnd(code)
		}
		text := html.EscapeString(code[:n])
		if class != "" {
			text = `<span class="` + class + `">` + text + `</span>`
		}
		b.WriteString(text)
		code = code[n:]
	}
	return b.String()
}

// plainEnd is where the next comment or string begins, at least 1.
func plainEnd(code, comment string) int {
	for i := 1; i < len(code); i++ {
		if strings.IndexByte("\"'`", code[i]) >= 0 || strings.HasPrefix(code[i:], comment) {
			return i
		}
	}
	return len(code)
}

func lineEnd(code string) int {
	if i := strings.IndexByte(code, '\n'); i >= 0 {
		return i
	}
	return len(code)
}

// stringEnd is the length of the string that code starts with. One that is not
// closed on its line is a lone character, such as an apostrophe.
func stringEnd(code string) int {
	for i := 1; i < len(code) && code[i] != '\n'; i++ {
		switch code[i] {
		case '\\':
			i++
		case code[0]:
			return i + 1
		}
	}
	return 1
}
