package clients

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// receiptProgram is the program of the chapter on receipts.
func receiptProgram() program {
	install := func(t *testing.T) string {
		return npmInstallOf(t, "@x402/fetch", "@x402/evm", "@x402/extensions", "viem")
	}
	return program{"receipt", "Checking a receipt", nodeWorkshop, install, typeCheck + "receipt.mts", false}
}

// TestReceiptProgram runs the program behind a stranger who changes answers: it finds
// that the bytes are others, that the signature is, and that an answer has no receipt.
func TestReceiptProgram(t *testing.T) {
	t.Parallel()
	p := receiptProgram()
	for says, change := range map[string]step{
		"The receipt DOES NOT HOLD: did:web:": changing(t, nil, func(body []byte) []byte {
			return bytes.Replace(body, []byte("mx1"), []byte("mx2"), 1)
		}),
		"signature verification failed":     changing(t, resigned(forged), nil),
		"No receipt came with this answer.": changing(t, func(r *x402.SettleResponse) { r.Extensions = x402.ResponseExtensions{} }, nil),
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			g, w, addr := newGateway(t, "", change), newWorld(t, resolver(t)), fixedAddress(t)
			w.env["BASE_URL"] = g.url // the service's own address leads through the stranger
			s := w.startAt(t, addr)
			g.to(t, "http://"+addr)
			o := p.run(t, p.tools(t), s, s.url)
			if o.err == nil || !strings.Contains(o.notes, says) || !strings.Contains(o.out, `"domain": "example.com"`) {
				t.Errorf("%v\n%s\n%s", o.err, o.out, o.notes)
			}
		})
	}
}

// changeReceipt changes what the header of an answer says of its payment.
func changeReceipt(t *testing.T, h http.Header, change func(*x402.SettleResponse)) {
	t.Helper()
	settled, err := (x402test.Reply{Header: h}).Receipt()
	if err != nil {
		t.Error(err)
		return
	}
	change(&settled)
	header, err := x402.EncodeHeader(settled)
	if err != nil {
		t.Error(err)
	}
	h.Set(x402.HeaderResponse, header)
}

// resigned has another receipt in the place of the one that was signed.
func resigned(change func(jws string) string) func(*x402.SettleResponse) {
	return func(r *x402.SettleResponse) {
		signed := &r.Extensions.OfferReceipt.Info.Receipt
		signed.Signature = change(signed.Signature)
	}
}

func forged(jws string) string { return jws[:len(jws)-4] + "AAAA" }
