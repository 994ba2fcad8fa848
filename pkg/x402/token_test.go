package x402

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestNewToken(t *testing.T) {
	random := strings.NewReader("0123456789abcdeffedcba9876543210")
	for _, want := range []string{"MDEyMzQ1Njc4OWFiY2RlZg", "ZmVkY2JhOTg3NjU0MzIxMA"} {
		if got, err := NewToken(random); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	broken := errors.New("no entropy")
	for name, random := range map[string]io.Reader{"fails": iotest.ErrReader(broken), "ends": strings.NewReader("fifteen bytes..")} {
		if token, err := NewToken(random); err == nil || token != "" {
			t.Errorf("%s: %q, %v", name, token, err)
		}
	}
}

// A challenge decodes to the same offer with its token, and with another error
// when there is a reason; the offer itself has no token.
func TestChallenge(t *testing.T) {
	o := testOffer(t)
	for _, reason := range []string{"Payment required", "because", "because of *retry-token* twice *retry-token*"} {
		for _, token := range []string{"AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw"} {
			h, err := o.Challenge(reason, token)
			raw, notBase64 := base64.StdEncoding.DecodeString(h)
			var got PaymentRequired
			if err := errors.Join(err, notBase64, json.Unmarshal(raw, &got)); err != nil {
				t.Fatal(err)
			}
			if got.Error != reason || got.Accepts[0] != o.required.Accepts[0] || got.Resource.URL != o.required.Resource.URL {
				t.Errorf("challenge %+v", got)
			}
			var e struct {
				Info   struct{ Token string }
				Schema struct{ Required []string }
			}
			if err := json.Unmarshal(got.Extensions[ExtensionToken], &e); err != nil || e.Info.Token != token || len(e.Schema.Required) != 1 {
				t.Errorf("%s, %v", got.Extensions[ExtensionToken], err)
			}
			if want := len(o.required.Extensions) + 1; len(got.Extensions) != want {
				t.Errorf("%d extensions, want %d", len(got.Extensions), want)
			}
		}
	}
	if _, carries := o.required.Extensions[ExtensionToken]; carries {
		t.Error("a challenge has changed the offer")
	}
}

// The token is not a part of what an echo is compared with, or of what the
// facilitator is sent, even where the offer came with one.
func TestTokenIsNoPartOfTheOffer(t *testing.T) {
	required := testOffer(t).Required("").WithToken("AAECAwQFBgcICQoLDA0ODw")
	o, err := NewOffer(required)
	if err != nil {
		t.Fatal(err)
	}
	if _, compared := o.infos[ExtensionToken]; compared {
		t.Error("the token is among the infos")
	}
	if _, forwarded := o.forwarded[ExtensionToken]; forwarded {
		t.Error("the token goes to the facilitator")
	}
	for _, echoed := range []any{nil, object{"info": object{"token": "another"}}, object{"info": object{}}, "text", json.Number("7")} {
		if err := o.echo(&Payment{extensions: object{ExtensionToken: echoed}}); err != nil {
			t.Errorf("%v: %v", echoed, err)
		}
	}
}

// What is echoed is read when it can be a token, and is absent otherwise.
func TestEchoedToken(t *testing.T) {
	long := strings.Repeat("x", longestToken)
	for _, c := range []struct{ extensions, want string }{
		{`{"retry-token":{"info":{"token":"AAECAwQFBgcICQoLDA0ODw"},"schema":{}}}`, "AAECAwQFBgcICQoLDA0ODw"},
		{`{"retry-token":{"info":{"token":"~","more":1}}}`, "~"},
		{`{"retry-token":{"info":{"token":"` + long + `"}}}`, long},
		{`{"retry-token":{"info":{"token":"` + long + `x"}}}`, ""},
		{`{"retry-token":{"info":{"token":""}}}`, ""},
		{`{"retry-token":{"info":{"token":"a b"}}}`, ""},
		{`{"retry-token":{"info":{"token":"\u00e9"}}}`, ""},
		{`{"retry-token":{"info":{"token":7}}}`, ""},
		{`{"retry-token":"AAECAwQFBgcICQoLDA0ODw"}`, ""},
		{`{"other":{"info":{"token":"AAECAwQFBgcICQoLDA0ODw"}}}`, ""},
	} {
		tree, err := parseObject([]byte(c.extensions))
		if err != nil {
			t.Fatalf("%s: %v", c.extensions, err)
		}
		if got := (&Payment{extensions: tree}).token(); got != c.want {
			t.Errorf("%s: %q, want %q", c.extensions, got, c.want)
		}
	}
	if got := (&Payment{}).token(); got != "" {
		t.Errorf("no extensions at all: %q", got)
	}
}

func TestForm(t *testing.T) {
	form, err := NewForm(func(token string) any { return map[string]string{"a": token, "b": "<&>"} })
	if err != nil {
		t.Fatal(err)
	}
	first, second := form.JSON("one"), form.JSON("two")
	if string(first) != `{"a":"one","b":"\u003c\u0026\u003e"}` || !strings.HasPrefix(string(second), `{"a":"two"`) {
		t.Errorf("%s, %s", first, second)
	}
	if first[0] = 'x'; form.JSON("one")[0] != '{' {
		t.Error("a change of the caller's copy changes another")
	}
	// However the groups of base64 fall around the token.
	for before := range 7 {
		for after := range 7 {
			form, err := NewForm(func(token string) any {
				return []string{strings.Repeat("a", before), token, strings.Repeat("b", after)}
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, token := range []string{"AAECAwQFBgcICQoLDA0ODw", strings.Repeat("x", tokenLength)} {
				if got, want := form.Header(token), base64.StdEncoding.EncodeToString(form.JSON(token)); got != want {
					t.Errorf("%d, %d, %q: %s, want %s", before, after, token, got, want)
				}
			}
		}
	}
	for name, build := range map[string]func(string) any{
		"no token":  func(string) any { return "x" },
		"two":       func(token string) any { return []string{token, token} },
		"no JSON":   func(string) any { return func() {} },
		"in pieces": func(token string) any { return []string{token[:11], token[11:]} },
	} {
		if _, err := NewForm(build); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
