package discovery

import (
	"html"
	"io/fs"
	"strings"
)

// snippet is a program that calls the first operation of the catalog. What is
// shown is a file of assets/snippets with this deployment's values in place of
// the documented ones, and infra/clients runs it as shown.
type snippet struct {
	ID      string // anchor on the page
	Title   string
	Name    string // what to save it as
	Install string // commands before it; empty: none
	Run     string // the command that runs it; empty: it is one itself
	Text    string // what to know about it, with `code`
	Code    string
	// Language is the tab of the page that it is in, the ID of its first
	// program; the others are folded. Without one it stands elsewhere.
	Language string
	file     string // in assets/snippets
	// markup is the program as HTML, coloured and escaped. It is made from the file
	// ahead of time, by TestGenerated, so that no function carries a lexer.
	markup string
}

// The documented values of the files, which a deployment's own replace.
const (
	documentedOrigin  = "https://api.example.com"
	documentedNetwork = "eip155:8453"
	documentedAsset   = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
)

func snippetList() []snippet {
	const (
		npm = "npm install @x402/fetch@2.27.0 @x402/evm@2.27.0 viem@2.57.0 tsx@4.23.15"
		pip = "pip install 'x402[evm,requests]==2.25.0'"
	)
	return []snippet{
		{
			ID: "typescript", Title: "TypeScript", Name: "pay.mts", file: "short.mts", Language: "typescript",
			Install: npm, Run: "PRIVATE_KEY=0x… IDEMPOTENCY_KEY=call-1 npx tsx pay.mts",
			Text: "The official client as it comes: it pays only with USDC, and at most $1 per call.",
		},
		{
			ID: "typescript-receipt", Title: "With the receipt and an exit status", Name: "pay.mts", file: "pay.mts", Language: "typescript",
			Text: "The same, for a script: the answer goes to stdout, the receipt to stderr, and the exit status says whether it was answered.",
		},
		{
			ID: "retries", Title: "With retries", Name: "retry.mts", file: "retry.mts", Language: "typescript",
			Install: npm, Run: "PRIVATE_KEY=0x… npx tsx retry.mts",
			Text: "The same client, asking until it has the answer, whatever is lost on the way. One `Idempotency-Key` makes all attempts one purchase, which is charged once; a new key asks anew.",
		},
		{
			ID: "python", Title: "Python", Name: "pay.py", file: "short.py", Language: "python",
			Install: pip, Run: "PRIVATE_KEY=0x… IDEMPOTENCY_KEY=call-1 python pay.py",
			Text: "The official client as it comes: it pays only with USDC, and at most $1 per call.",
		},
		{
			ID: "python-receipt", Title: "With the receipt and an exit status", Name: "pay.py", file: "pay.py", Language: "python",
			Text: "The same, for a script: the answer goes to stdout, the receipt to stderr, and the exit status says whether it was answered.",
		},
		{
			ID: "go", Title: "Go", Name: "main.go", file: "pay.go.txt", Language: "go",
			Install: "go mod init pay && go get github.com/decred/dcrd/dcrec/secp256k1/v4@v4.4.1 golang.org/x/crypto@v0.58.0",
			Run:     "PRIVATE_KEY=0x… IDEMPOTENCY_KEY=call-1 go run .",
			Text:    "The whole handshake without an x402 library: what to check in an offer, what to hash, what to sign.",
		},
		{
			ID: "curl", Title: "curl", Name: "The offer, with curl", file: "offer.sh", Language: "curl",
			Text: "Asks what a call costs. It is free, and answers 402 with the offer. `curl` alone cannot pay, because it cannot sign.",
		},
		{
			ID: "signed", Title: "With a prepared signature", Name: "Sending a signature, with curl", file: "send.sh", Language: "curl",
			Text: "Sends a `PAYMENT-SIGNATURE` that something else has made, with its key, and may be repeated: the same answer comes back and nothing is charged.",
		},
		{
			ID: "agent", Title: "Paying over MCP", Name: "agent.mts", file: "agent.mts",
			Install: "npm install @modelcontextprotocol/sdk@1.32.2 @x402/core@2.27.0 @x402/evm@2.27.0 viem@2.57.0 tsx@4.23.15",
			Run:     "PRIVATE_KEY=0x… IDEMPOTENCY_KEY=call-1 npx tsx agent.mts",
			Text:    "A host without a wallet shows the price to its model, and cannot pay. Those that can are programs such as this one: the official SDK, a wallet, and a key that names the purchase.",
		},
		{
			ID: "receipt", Title: "Checking a receipt", Name: "receipt.mts", file: "receipt.mts",
			Install: "npm install @x402/fetch@2.27.0 @x402/evm@2.27.0 @x402/extensions@2.27.0 viem@2.57.0 tsx@4.23.15",
			Run:     "PRIVATE_KEY=0x… IDEMPOTENCY_KEY=call-1 npx tsx receipt.mts",
			Text: "Pays with the official client and checks the receipt with the official package, which reads the key by its `kid`: over https, and over http only from `localhost` and `127.0.0.1`. " +
				"The package checks the signature and nothing else: that the key is one of the host that was asked, and that request, payer, transaction and bytes are those of this answer, is compared here. " +
				"The URL has every parameter as the receipt writes it: names in lower case, types in upper case, defaults too.",
		},
	}
}

// programs are those of the list with the values of a site.
func programs(s Site) []snippet {
	list := snippetList()
	own := strings.NewReplacer(documentedOrigin, s.Origin, documentedNetwork, s.Terms.Network, documentedAsset, s.Terms.Asset)
	ownMarkup := strings.NewReplacer(documentedOrigin, html.EscapeString(s.Origin), documentedNetwork, html.EscapeString(s.Terms.Network),
		documentedAsset, html.EscapeString(s.Terms.Asset))
	colored, _ := fs.ReadFile(assets, coloredFile)
	for i := range list {
		raw, _ := fs.ReadFile(assets, "assets/snippets/"+list[i].file)
		list[i].Code = strings.TrimSuffix(own.Replace(string(raw)), "\n")
		_, markup, _ := strings.Cut(string(colored), coloredBegin(list[i].file))
		markup, _, _ = strings.Cut(markup, "<!--")
		list[i].markup = strings.TrimSuffix(ownMarkup.Replace(markup), "\n")
	}
	return list
}

// coloredFile is the markup of every file of assets/snippets, each after the line
// that coloredBegin makes of its name. The markup has no other comment.
const coloredFile = "assets/generated/colored.html"

func coloredBegin(file string) string { return "<!-- " + file + " -->\n" }
