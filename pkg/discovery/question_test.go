package discovery

import (
	"net/url"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestShownByName checks that all fields of one name in an answer are shown in the same way.
// They must be, because the page looks up by a field's name how to show the field.
func TestShownByName(t *testing.T) {
	for _, op := range catalog.All() {
		shown := map[string]string{}
		var walk func(fields []catalog.Field)
		walk = func(fields []catalog.Field) {
			for _, f := range fields {
				if how, known := shown[f.Name]; known && how != f.Show {
					t.Errorf("%s: %s is shown as %q and as %q", op.Slug, f.Name, how, f.Show)
				}
				shown[f.Name] = f.Show
				walk(f.Fields)
				for _, item := range f.Items {
					walk(item.Fields)
				}
			}
		}
		walk(op.Fields)
	}
}

// TestQuestionOf checks that a question contains the values of the request, and the defaults
// of parameters that were not sent.
func TestQuestionOf(t *testing.T) {
	asked := url.Values{"domain": {"example.com"}}
	wantEqual(t, "with a default", []piece{{Text: "A", Value: true}, {Text: " records of "}, {Text: "example.com", Value: true}}, questionOf(catalog.DNS(), asked))
	asked.Set("type", "MX")
	wantEqual(t, "with a type", "MX", questionOf(catalog.DNS(), asked)[0].Text)
	wantEqual(t, "a URL", []piece{{Text: "Where "}, {Text: "https://example.com/", Value: true}, {Text: " leads"}}, questionOf(catalog.ResolveRedirect(), asked))
	wantEqual(t, "words of ours alone", []piece{{Text: "A payment smoke test"}}, questionOf(catalog.Ping(), asked))
}
