package discovery

import (
	"encoding/json"
	"errors"
	"html"
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
	File     string // in assets/snippets
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

// programs are those of the list with the values of a site.
func programs(s Site) []snippet {
	var list []snippet
	var colored map[string]string // the markup of every file, by its name
	err := errors.Join(json.Unmarshal(must(assets.ReadFile("assets/snippets.json")), &list), json.Unmarshal([]byte(generated("colored.json")), &colored))
	if err != nil {
		panic(err)
	}
	own := strings.NewReplacer(documentedOrigin, s.Origin, documentedNetwork, s.Terms.Network, documentedAsset, s.Terms.Asset)
	ownMarkup := strings.NewReplacer(documentedOrigin, html.EscapeString(s.Origin), documentedNetwork, html.EscapeString(s.Terms.Network),
		documentedAsset, html.EscapeString(s.Terms.Asset))
	for i := range list {
		raw := must(assets.ReadFile("assets/snippets/" + list[i].File))
		list[i].Code = strings.TrimSuffix(own.Replace(string(raw)), "\n")
		list[i].markup = strings.TrimSuffix(ownMarkup.Replace(colored[list[i].File]), "\n")
	}
	return list
}
