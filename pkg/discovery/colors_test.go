package discovery

import (
	"html"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
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

// TestColors makes the markup of every program (with -update), and holds what
// is embedded to it and to the program: other colours, the same text.
func TestColors(t *testing.T) {
	var all strings.Builder
	for _, f := range must(fs.ReadDir(assets, "assets/snippets")) {
		raw := must(fs.ReadFile(assets, "assets/snippets/"+f.Name()))
		markup := colored(f.Name(), string(raw))
		if text := textOf(parse(t, []byte("<pre>"+markup+"</pre>"))); text != string(raw) {
			t.Errorf("%s: the markup says\n%s", f.Name(), text)
		}
		all.WriteString(coloredBegin(f.Name()) + markup)
	}
	if *update {
		if err := os.WriteFile(coloredFile, []byte(all.String()), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	same(t, coloredFile+", run with -update", string(must(fs.ReadFile(assets, coloredFile))), all.String())
}
