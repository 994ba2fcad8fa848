package discovery

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestOutcomeOfEveryCode(t *testing.T) {
	yes, no := true, false
	for _, info := range fault.All() {
		want := map[fault.Class]outcome{
			fault.Standing: {Charged: "see body"},
			fault.Answer:   {Charged: "yes", charged: &yes}, fault.Owed: {Charged: "yes, answer owed", charged: &yes},
		}[info.Class]
		switch info.Code {
		case fault.InternalError: // owed only when it follows a settlement
			want = outcome{Charged: "see body"}
		case fault.PaymentRequired:
			want = outcome{Charged: "no", charged: &no}
		case fault.IdempotencyConflict:
			want.Charged = "no or not known yet"
		case fault.PaymentInProgress, fault.SettlementUncertain:
			want.Charged = "not known yet or yes"
		case fault.FacilitatorUnavailable, fault.FacilitatorMisconfigured, fault.FacilitatorUnauthorized:
			want.Charged = "no or not known yet"
		}
		got := outcomeOf(info.Code)
		if got.Charged != want.Charged || !cmp.Equal(got.charged, want.charged) {
			t.Errorf("%s: %+v", info.Code, got)
		}
		if (got.Retryable == "yes") != info.Retry {
			t.Errorf("%s: retryable %s", info.Code, got.Retryable)
		}
	}
	if got := outcomeOf("no_such_code"); got.Code != fault.InternalError {
		t.Errorf("an unknown code is explained as %+v", got)
	}
}

// TestWindowOff: no document promises what the configuration has turned off.
func TestWindowOff(t *testing.T) {
	s := testSite()
	s.DuplicateWindow = 0
	text := strings.Join(rules(s, catalog.All()), "\n")
	if strings.Contains(text, "seconds after the answer") || !strings.Contains(text, "while their first payment is undecided") {
		t.Errorf("without a window: %s", text)
	}
	unpaid := codeByLabel(docsRoot(t, must(Render(s))))["Body of the 402"][0]
	if got := at(t, tree(t, []byte(unpaid)), "idempotency", "duplicate_window_seconds"); got != 0.0 {
		t.Errorf("the body of the 402 says %v", got)
	}
}

func TestRulesNameOnlyWhatCanHappen(t *testing.T) {
	text := strings.Join(rules(testSite(), []catalog.Operation{catalog.Ping()}), "\n")
	if strings.Contains(text, "nxdomain") || strings.Contains(text, "A failure of ours") || strings.Contains(text, "A bundle") {
		t.Errorf("the smoke test alone: %s", text)
	}
	if text := strings.Join(rules(testSite(), []catalog.Operation{catalog.DNS()}), "\n"); strings.Contains(text, "smoke test") {
		t.Errorf("no smoke test: %s", text)
	}
	if _, err := render(testSite(), []catalog.Operation{catalog.Ping()}, nil); err != nil {
		t.Error(err)
	}
}

func TestNetworkName(t *testing.T) {
	for network, want := range map[string]string{
		"eip155:8453": "Base (eip155:8453)", "eip155:84532": "Base Sepolia, a test network (eip155:84532)", "eip155:1": "eip155:1",
	} {
		s := testSite()
		s.Terms.Network = network
		if got := s.networkName(); got != want {
			t.Errorf("%s: %q", network, got)
		}
		if got := s.chainID(); "eip155:"+got != network {
			t.Errorf("%s: chain %s", network, got)
		}
	}
}

func TestTypedParameters(t *testing.T) {
	for _, tt := range []struct {
		kind, text string
		want       any
	}{
		{"string", "1", "1"}, {"integer", "443", int64(443)}, {"integer", "x", "x"}, {"boolean", "true", true}, {"boolean", "x", "x"},
	} {
		if got := typed(catalog.Param{Type: tt.kind}, tt.text); got != tt.want {
			t.Errorf("%s %q: %v", tt.kind, tt.text, got)
		}
	}
}

func TestNullableAlternatives(t *testing.T) {
	s := validator(fieldSchema(catalog.Field{Type: "object", Nullable: true, Items: []catalog.Field{
		{Type: "object", Fields: []catalog.Field{{Name: "a", Type: "string"}}},
		{Type: "object", Fields: []catalog.Field{{Name: "b", Type: "string"}}},
	}}, full))
	for raw, ok := range map[string]bool{`null`: true, `{"a":"x"}`: true, `{"b":"x"}`: true, `{"c":"x"}`: false, `1`: false} {
		if err := fits(s, []byte(raw)); (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestProse(t *testing.T) {
	for in, want := range map[string]string{
		"a `b` c": "a <code>b</code> c", "<a> & `<b>`": "&lt;a&gt; &amp; <code>&lt;b&gt;</code>", "": "",
	} {
		if got := prose(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestObjectKeepsItsOrderAndReportsWhatCannotBeEncoded(t *testing.T) {
	got, err := encode(object{{"z", 1}, {"a", object{}}, {"<&>", "<&>"}})
	if want := `{"z":1,"a":{},"<&>":"<&>"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if _, err := encode(object{{"bad", func() {}}}); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("error %v does not name the member", err)
	}
}

// Whoever gives a document to a model pays for each of its tokens, which are
// about four characters each. The origin of testSite is the longest that this is
// promised for.
func TestSizesInTokens(t *testing.T) {
	d := rendered()
	for path, most := range map[string]int{
		catalog.PathLLMs: 2500, catalog.PathCatalog: 7000, catalog.PathOpenAPI: 16000, catalog.PathLLMsFull: 12000,
	} {
		tokens := (len([]rune(string(body(t, d, path)))) + 3) / 4
		t.Logf("%s: %d tokens of %d", path, tokens, most)
		if tokens > most {
			t.Errorf("%s has %d tokens, at most %d are allowed", path, tokens, most)
		}
	}
}

// TestErrorSentencesAreSaidOnce: what a code means is said in one place of each
// text for machines.
func TestErrorSentencesAreSaidOnce(t *testing.T) {
	d := rendered()
	for _, path := range []string{catalog.PathLLMs, catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathLLMsFull} {
		// The error of a child in an example is no explanation.
		text := regexp.MustCompile(`"error":\{[^}]*\}`).ReplaceAllString(string(body(t, d, path)), "")
		for _, info := range fault.All() {
			if info.Code == fault.PaymentRequired {
				continue // an example of an offer carries it
			}
			for _, sentence := range regexp.MustCompile(`[^.]{25,}\.`).FindAllString(info.Message, -1) {
				sentence = strings.TrimSpace(sentence)
				if shared(sentence) {
					continue // such as "Retry with the same PAYMENT-SIGNATURE."
				}
				if n := strings.Count(text, sentence); n > 1 {
					t.Errorf("%s says %d times: %s", path, n, sentence)
				}
			}
		}
	}
}

// shared says whether the messages of several codes have a sentence.
func shared(sentence string) bool {
	n := 0
	for _, info := range fault.All() {
		n += strings.Count(info.Message, sentence)
	}
	return n > 1
}
