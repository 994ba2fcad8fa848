package snippets

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	if diff := cmp.Diff(shown.byLabel["PAYMENT-REQUIRED as sent"][0], list[0].Header.Get("PAYMENT-REQUIRED")); diff != "" {
		t.Errorf("PAYMENT-REQUIRED on the page (-) and from the service (+): %s", diff)
	}
	if diff := cmp.Diff(shown.byLabel["Body of the 402"][0], string(bodies[0])); diff != "" {
		t.Errorf("body of the 402 on the page (-) and from the service (+): %s", diff)
	}
	if len(s.books.Transfers()) != 0 {
		t.Error("asking for the price moved money")
	}
}

// TestSignatureWithCurl sends a signature that a wallet has made, through a
// lost settlement, and then once more.
func TestSignatureWithCurl(t *testing.T) {
	t.Parallel()
	w, s := curlWorkshop(t), start(t, x402test.FailAfter)
	shown := readPage(t, s)
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	client := &x402test.Client{HTTP: &http.Client{Timeout: patience}, Wallet: wallet, Now: time.Now}
	signature, err := client.Sign(t.Context(), catalog.DNS().ExampleURL(s.url))
	if err != nil {
		t.Fatal(err)
	}
	for _, replayed := range []string{"", "true"} {
		var notes strings.Builder
		cmd := w.shell(t, shown.programs["signed"], "SIGNATURE="+signature)
		cmd.Stderr = &notes
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, notes.String())
		}
		list, bodies := replies(t, out)
		last := len(list) - 1
		if list[last].StatusCode != http.StatusOK || list[last].Header.Get("PAYMENT-RESPONSE") == "" || list[last].Header.Get("Idempotent-Replayed") != replayed {
			t.Fatalf("the last answer: %v %v", list[last].Status, list[last].Header)
		}
		if replayed == "" && (last == 0 || list[0].StatusCode != http.StatusServiceUnavailable) {
			t.Errorf("%d answers, the first %s: the settlement was not lost", len(list), list[0].Status)
		}
		var got map[string]any
		if err := json.Unmarshal(bodies[last], &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(answer(t), got); diff != "" {
			t.Error(diff)
		}
	}
	if moved := s.books.Transfers(); len(moved) != 1 {
		t.Errorf("money moved: %+v", moved)
	}
}
