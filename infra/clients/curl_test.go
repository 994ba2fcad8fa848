package clients

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func curlWorkshop(t *testing.T) workshop {
	t.Helper()
	testbed.Find(t, "curl", "curl")
	return workshop{dir: t.TempDir()}
}

// curled is the one answer that a command of the page has printed with curl -i.
func curled(t *testing.T, w workshop, line string, env ...string) (*http.Response, []byte) {
	t.Helper()
	printed := testbed.Run(t, w.shell(t, line, env...))
	in := bufio.NewReader(bytes.NewReader(printed))
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("%v in %s", err, printed)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if rest, _ := io.ReadAll(in); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		t.Fatalf("%v in %s", err, printed)
	}
	return res, body
}

// TestCurl: what the service answers to the command on the page is what the page says
// that it answers. A signature that a wallet has made is then sent, through a lost
// settlement, and once more.
func TestCurl(t *testing.T) {
	t.Parallel()
	w, s := curlWorkshop(t), start(t, x402test.FailAfter)
	shown := readPage(t, s)
	res, body := curled(t, w, shown.programs["curl"])
	for label, got := range map[string]string{
		"PAYMENT-REQUIRED as sent": unwrapped(t, res.Header.Get(x402.HeaderRequired)), "Body of the 402": string(body),
	} {
		want := shown.byLabel[label][0]
		if label == "PAYMENT-REQUIRED as sent" {
			want = unwrapped(t, want)
		}
		if diff := cmp.Diff(tokenless(t, want), tokenless(t, got)); res.StatusCode != http.StatusPaymentRequired || diff != "" {
			t.Errorf("%s: %s on the page (-) and from the service (+): %s", res.Status, label, diff)
		}
	}
	if len(s.books.Transfers()) != 0 {
		t.Error("asking for the price moved money")
	}
	signature := sign(t, s.url)
	for _, replayed := range []string{"", "true"} {
		res, body := curled(t, w, shown.programs["signed"], "SIGNATURE="+signature)
		if res.StatusCode != http.StatusOK || res.Header.Get(x402.HeaderResponse) == "" || res.Header.Get(x402.HeaderReplayed) != replayed {
			t.Fatalf("%s %v", res.Status, res.Header)
		}
		outcome{out: string(body)}.checkPaid(t, s)
		if n, _ := s.books.Settles(); n != 2 {
			t.Errorf("%d settlements were asked for, want 2: the first one's news is lost", n)
		}
	}
}

// unwrapped is the JSON in a header.
func unwrapped(t *testing.T, header string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// tokenless is an offer without the retry token, of which each has another.
func tokenless(t *testing.T, offer string) string {
	t.Helper()
	token := regexp.MustCompile(`"retry-token":\{"info":\{"token":"[A-Za-z0-9_-]{22}"`)
	if n := len(token.FindAllString(offer, -1)); n != 1 {
		t.Errorf("%d retry tokens in %s", n, offer)
	}
	return token.ReplaceAllString(offer, "")
}

// sign is a signature that a wallet has made for the example call.
func sign(t *testing.T, origin string) string {
	t.Helper()
	client := testbed.NewClient(t, &http.Client{Timeout: patience})
	signature, err := client.Sign(t.Context(), catalog.DNS().ExampleURL(origin))
	if err != nil {
		t.Fatal(err)
	}
	return signature
}
