package discovery

import (
	"fmt"
	"html"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"
	layout "github.com/tidwall/pretty"
)

// command is a program that a line of shell starts.
var command = regexp.MustCompile(`(?m)(^|[|&;(] *)(curl|printf|tr|jq|grep|base64)\b`)

// colored is a program as HTML: each token that the style has a colour for in a
// span, and everything escaped.
func colored(file, code string) string {
	language := map[string]string{".mts": "typescript", ".py": "python", ".sh": "bash", ".txt": "go"}[path.Ext(file)]
	list := must(chroma.Coalesce(lexers.Get(language)).Tokenise(nil, code)).Tokens()
	var b strings.Builder
	for i, token := range list {
		called := i+1 < len(list) && strings.HasPrefix(list[i+1].Value, "(")
		text := html.EscapeString(token.Value)
		switch class := classOf(token.Type, called); {
		case class != "":
			b.WriteString(`<span class="` + class + `">` + text + "</span>")
		case path.Ext(file) == ".sh":
			b.WriteString(command.ReplaceAllString(text, `$1<span class="f">$2</span>`))
		default:
			b.WriteString(text)
		}
	}
	return b.String()
}

// classOf is the class that the stylesheet knows a token by; called says that
// parentheses follow.
func classOf(kind chroma.TokenType, called bool) string {
	switch {
	case kind.InCategory(chroma.Comment):
		return "c"
	case kind.InSubCategory(chroma.String):
		return "s"
	case kind.InSubCategory(chroma.Number), kind == chroma.KeywordConstant:
		return "n"
	case kind == chroma.KeywordType, kind == chroma.NameClass, kind == chroma.NameException:
		return "t"
	case kind.InCategory(chroma.Keyword), kind == chroma.OperatorWord:
		return "w"
	case kind == chroma.NameFunction, kind == chroma.NameBuiltin, kind.InCategory(chroma.Name) && called:
		return "f"
	case kind.InCategory(chroma.Name) && kind.InSubCategory(chroma.NameVariable):
		return "k"
	}
	return ""
}

// TestGenerated makes (with -update) what is embedded in place of its sources: the markup
// of every program, which has other colours and the same text, and the minified styles
// and scripts of the pages.
func TestGenerated(t *testing.T) {
	all := map[string]string{}
	for _, f := range must(fs.ReadDir(assets, "assets/snippets")) {
		raw := must(fs.ReadFile(assets, "assets/snippets/"+f.Name()))
		markup := colored(f.Name(), string(raw))
		if text := textOf(parse(t, []byte("<pre>"+markup+"</pre>"))); text != string(raw) {
			t.Errorf("%s: the markup says\n%s", f.Name(), text)
		}
		all[f.Name()] = markup
	}
	m := minify.New()
	m.AddFunc("css", css.Minify)
	m.AddFunc("js", js.Minify)
	joined := func(kind, around string, names ...string) string {
		var b strings.Builder
		for _, name := range names {
			b.Write(must(os.ReadFile("assets/" + name + "." + kind)))
		}
		return must(m.String(kind, fmt.Sprintf(around, b.String())))
	}
	for name, want := range map[string]string{
		"colored.json": string(layout.Pretty(encode(all))), "docs.css": joined("css", "%s", "style", "docs"), "docs.js": joined("js", "%s", "docs"), "early.js": joined("js", "%s", "early"), "place.js": joined("js", "%s", "place"),
		"missing.css": joined("css", "%s", "style", "missing"), "paywall.css": joined("css", "%s", "style", "paywall"),
		"paywall.js": joined("js", "(() => {%s})()", "paywall-view", "paywall-answer", "paywall-wallet", "paywall-send"),
	} {
		kept(t, "assets/generated/"+name, want)
	}
}

// TestPaywallScript holds the script to what keeps strangers' words text, and the page in
// one piece.
func TestPaywallScript(t *testing.T) {
	for _, bad := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setHTML", "parseFromString",
		"createContextualFragment", "</script", "<!--", "{{", "sessionStorage", "parseFloat", "http://", "https://",
	} {
		if strings.Contains(generated("paywall.js"), bad) {
			t.Errorf("the script has %q", bad)
		}
	}
}
