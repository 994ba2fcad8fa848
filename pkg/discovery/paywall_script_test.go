package discovery

import (
	"regexp"
	"strings"
	"testing"
)

func TestSqueeze(t *testing.T) {
	for line, want := range map[string]string{
		`const a = { b: [1, 2], c: x ? y : z };`:          `const a={b:[1,2],c:x?y:z};`,
		`if (a && b || !c) return (d); // why, "quoted"`:  `if(a&&b||!c)return(d);`,
		`say("a, b : { c } // d" + " = e");`:              `say("a, b : { c } // d"+" = e");`,
		`say("\" , \\", 'f', ` + "`${g} , ${h}`" + `, i)`: `say("\" , \\",'f',` + "`${g} , ${h}`" + `,i)`,
		`for (const a of b) c = d - -e + +f;`:             `for(const a of b)c=d - -e+ +f;`,
		`a++ + b + ++c + "+ +"`:                           `a++ +b+ ++c+"+ +"`,
		`const [r, s] = [/(":?)/g, t];`:                   `const[r,s]=[/(":?)/g, t];`,
		`async (c) => { await d(c); }`:                    `async(c)=>{await d(c);}`,
		`} catch {`:                                       `}catch{`,
	} {
		if got := squeeze(line); got != want {
			t.Errorf("%s\nis %s\nwant %s", line, got, want)
		}
	}
}

func TestJoin(t *testing.T) {
	for line, want := range map[string]string{
		`if(a){`: `if(a){`, `f(a,`: `f(a,`, `a=b;`: `a=b;`, `"a;"`: "\"a;\"\n", `}`: "}", `})`: "})\n", `for(const a of b)`: "for(const a of b)\n", `f(a)`: "f(a)\n",
	} {
		if got := join(line); got != want {
			t.Errorf("%s is %q, want %q", line, got, want)
		}
	}
}

// TestPaywallScriptKeepsItsWords: what is quoted is said as it was written,
// and what squeeze does not know of is not there.
func TestPaywallScriptKeepsItsWords(t *testing.T) {
	js, quoted, words := paywallScript(), regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`"), 0
	for line := range strings.Lines(paywallView + paywallWallet + paywallSend) {
		code, _, _ := strings.Cut(strings.TrimSpace(line), " // ")
		if strings.HasPrefix(code, "//") || strings.HasPrefix(code, "/**") || strings.HasPrefix(code, "* ") {
			continue
		}
		if strings.ContainsAny(quoted.ReplaceAllString(code, ""), "\"'`") {
			t.Errorf("quotes that squeeze does not follow: %s", code)
		}
		for _, text := range quoted.FindAllString(code, -1) {
			if words++; !strings.Contains(js, text) {
				t.Errorf("%s is not in the script", text)
			}
		}
	}
	if words < 300 {
		t.Errorf("%d texts were looked for", words)
	}
}

// TestPaywallScript holds the script to what keeps strangers' words text, and
// the page in one piece.
func TestPaywallScript(t *testing.T) {
	js := paywallScript()
	for _, bad := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setHTML", "parseFromString",
		"createContextualFragment", "</script", "<!--", "{{", "sessionStorage", "parseFloat", "http://", "https://",
	} {
		if strings.Contains(js, bad) {
			t.Errorf("the script has %q", bad)
		}
	}
	for line := range strings.Lines(js) {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "//") || strings.HasPrefix(line, "*") || line == "\n" {
			t.Errorf("left in: %q", line)
		}
	}
	whole := paywallView + paywallWallet + paywallSend
	// A line of a template literal would lose its indentation: there is none.
	for line := range strings.Lines(whole) {
		if strings.Count(line, "`")%2 != 0 {
			t.Errorf("a template literal spans lines: %q", line)
		}
	}
	if len(js) < len(whole)/2 {
		t.Errorf("%d bytes of %d are left", len(js), len(whole))
	}
}
