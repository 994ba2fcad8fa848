package house

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/google/go-cmp/cmp"
	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"
)

var update = flag.Bool("update", false, "write what is embedded")

// pagesFolder is the folder with the sources of the web pages.
const pagesFolder = root + "/pkg/discovery/assets"

// commandName matches the name of a program where a shell script starts the program.
var commandName = regexp.MustCompile(`(?m)(^|[|&;(] *)(curl|printf|tr|jq|grep|base64)\b`)

// colorTag matches the HTML tags that colour a program.
var colorTag = regexp.MustCompile(`<span class="[a-z]">|</span>`)

// TestPrograms checks that the highlighted programs on the pages match their sources. The markup
// only adds colours; the text is the same.
func TestPrograms(t *testing.T) {
	all := map[string]string{}
	programs, err := filepath.Glob(pagesFolder + "/snippets/*")
	if err != nil || len(programs) == 0 {
		t.Fatalf("no program: %v", err)
	}
	for _, name := range programs {
		source := readText(t, name)
		markup := highlight(t, name, source)
		if text := html.UnescapeString(colorTag.ReplaceAllString(markup, "")); text != source {
			t.Errorf("%s: the markup says\n%s", name, text)
		}
		all[filepath.Base(name)] = markup
	}
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(all); err != nil {
		t.Fatal(err)
	}
	checkEmbedded(t, "colored.json", document.String())
}

// highlight returns a program as escaped HTML. Each token for which the style has a colour is
// in a span.
func highlight(t *testing.T, file, code string) string {
	t.Helper()
	language := map[string]string{".mts": "typescript", ".py": "python", ".sh": "bash", ".txt": "go"}[path.Ext(file)]
	tokens, err := chroma.Coalesce(lexers.Get(language)).Tokenise(nil, code)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	list := tokens.Tokens()
	var b strings.Builder
	for i, token := range list {
		isCall := i+1 < len(list) && strings.HasPrefix(list[i+1].Value, "(")
		text := html.EscapeString(token.Value)
		switch class := classOf(token.Type, isCall); {
		case class != "":
			b.WriteString(`<span class="` + class + `">` + text + "</span>")
		case path.Ext(file) == ".sh":
			b.WriteString(commandName.ReplaceAllString(text, `$1<span class="f">$2</span>`))
		default:
			b.WriteString(text)
		}
	}
	return b.String()
}

// classOf returns the stylesheet's class for a token, or an empty text if the token has none.
// isCall says whether a parenthesis follows the token.
func classOf(kind chroma.TokenType, isCall bool) string {
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
	case kind == chroma.NameFunction, kind == chroma.NameBuiltin, kind.InCategory(chroma.Name) && isCall:
		return "f"
	case kind.InCategory(chroma.Name) && kind.InSubCategory(chroma.NameVariable):
		return "k"
	}
	return ""
}

// TestMinified checks that the minified styles and scripts of the pages match their sources.
func TestMinified(t *testing.T) {
	m := minify.New()
	m.AddFunc("css", css.Minify)
	m.AddFunc("js", js.Minify)
	for _, made := range []struct {
		name        string
		wrapper     string
		sourceNames []string
	}{
		{"docs.css", "%s", []string{"style", "docs"}},
		{"missing.css", "%s", []string{"style", "missing"}},
		{"paywall.css", "%s", []string{"style", "paywall"}},
		{"docs.js", "(() => {%s})()", []string{"docs-find", "docs"}},
		{"early.js", "%s", []string{"early"}},
		{"place.js", "%s", []string{"place"}},
		{"paywall.js", "(() => {%s})()", []string{"paywall-view", "paywall-answer", "paywall-wallet", "paywall-receipt", "paywall-send"}},
	} {
		kind := path.Ext(made.name)
		var sources strings.Builder
		for _, name := range made.sourceNames {
			sources.WriteString(readText(t, filepath.Join(pagesFolder, name+kind)))
		}
		text, err := m.String(kind[1:], fmt.Sprintf(made.wrapper, sources.String()))
		if err != nil {
			t.Fatalf("%s: %v", made.name, err)
		}
		if kind == ".css" {
			text = shortenProperties(text)
		}
		checkEmbedded(t, made.name, text)
	}
}

// customProperty matches the name of a custom property of a style.
var customProperty = regexp.MustCompile(`--[a-z][a-z-]*`)

// shortenProperties returns a style whose custom properties have names of one or two
// characters. It also removes the line ends in container queries, which the minifier does not
// change.
func shortenProperties(style string) string {
	names := map[string]string{}
	style = customProperty.ReplaceAllStringFunc(style, func(name string) string {
		if names[name] == "" {
			names[name] = "--" + strconv.FormatInt(int64(10+len(names)), 36)
		}
		return names[name]
	})
	return strings.NewReplacer(";\n  ", ";", "\n  ", "", ";\n}", "}", "; }", "}", " }\n", "}", "\n}", "}", " { ", "{", "; ", ";").Replace(style)
}

// checkEmbedded checks that an embedded file has the wanted text. With -update it writes the
// file first.
func checkEmbedded(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join(pagesFolder, "generated", name)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(readText(t, file), want); diff != "" {
		t.Errorf("%s, which make update writes (-file +sources):\n%s", file, diff)
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
