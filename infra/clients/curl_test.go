package clients

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func curlWorkshop(t *testing.T) workshop {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl: it is not in PATH")
	}
	return workshop{dir: t.TempDir()}
}

// replies are the answers that curl -i printed, one after the other.
func replies(t *testing.T, printed []byte) (list []*http.Response, bodies [][]byte) {
	t.Helper()
	for in := bufio.NewReader(bytes.NewReader(printed)); ; {
		if _, err := in.Peek(1); err != nil {
			return list, bodies
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%v in %s", err, printed)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatalf("%v in %s", err, printed)
		}
		list, bodies = append(list, res), append(bodies, body)
	}
}

// TestOfferWithCurl compares what the service answers to the command on the
// page with what the page says that it answers.
func TestOfferWithCurl(t *testing.T) {
	t.Parallel()
	w, s := curlWorkshop(t), start(t, x402test.Honest)
	shown := readPage(t, s)
	out, err := w.shell(t, shown.programs["curl"]).Output()
	if err != nil {
		t.Fatal(err)
	}
	list, bodies := replies(t, out)
	if len(list) != 1 || list[0].StatusCode != http.StatusPaymentRequired {
		t.Fatalf("%s", out)
	}
	if diff := cmp.Diff(tokenless(t, unwrapped(t, shown.byLabel["PAYMENT-REQUIRED as sent"][0])), tokenless(t, unwrapped(t, list[0].Header.Get("PAYMENT-REQUIRED")))); diff != "" {
		t.Errorf("PAYMENT-REQUIRED on the page (-) and from the service (+): %s", diff)
	}
	if diff := cmp.Diff(tokenless(t, shown.byLabel["Body of the 402"][0]), tokenless(t, string(bodies[0]))); diff != "" {
		t.Errorf("body of the 402 on the page (-) and from the service (+): %s", diff)
	}
	if len(s.books.Transfers()) != 0 {
		t.Error("asking for the price moved money")
	}
}

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

// withSignature is the command that sends what something else has signed.
func withSignature(t *testing.T, p program, w workshop, s service, url string) *exec.Cmd {
	t.Helper()
	line := strings.ReplaceAll(readPage(t, s).programs[p.id], s.url, url)
	return w.shell(t, line, "SIGNATURE="+sign(t, s.url))
}

// TestSignatureWithCurl sends a signature that a wallet has made, through a
// lost settlement, and then once more.
func TestSignatureWithCurl(t *testing.T) {
	t.Parallel()
	w, s := curlWorkshop(t), start(t, x402test.FailAfter)
	shown := readPage(t, s)
	signature := sign(t, s.url)
	for _, replayed := range []string{"", "true"} {
		var notes strings.Builder
		cmd := w.shell(t, shown.programs["signed"], "SIGNATURE="+signature)
		cmd.Stderr = &notes
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, notes.String())
		}
		list, bodies := replies(t, bytes.TrimSuffix(out, []byte("\n")))
		if len(list) != 1 || list[0].StatusCode != http.StatusOK || list[0].Header.Get("PAYMENT-RESPONSE") == "" || list[0].Header.Get("Idempotent-Replayed") != replayed {
			t.Fatalf("%s", out)
		}
		if n, _ := s.books.Settles(); n != 2 {
			t.Errorf("%d settlements were asked for, want 2: the first one's news is lost", n)
		}
		outcome{out: string(bodies[0])}.checkAnswer(t)
	}
	if moved := s.books.Transfers(); len(moved) != 1 {
		t.Errorf("money moved: %+v", moved)
	}
}
