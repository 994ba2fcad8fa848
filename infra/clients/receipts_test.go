package clients

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// receiptProgram is the program of the chapter on receipts.
func receiptProgram() program {
	return program{"receipt", "Checking a receipt", nodeWorkshop, withKey, typeCheck + "receipt.mts", receiptInstall}
}

func receiptInstall(t *testing.T) string {
	t.Helper()
	v, err := testbed.PackageVersions(".")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(npmInstall(t), " viem@", " @x402/extensions@"+v["@x402/extensions"]+" viem@", 1)
}

// TestReceiptProgram runs the program as the page shows it: it finds that the
// receipt holds, that an answer has none, and that the bytes are others.
func TestReceiptProgram(t *testing.T) {
	t.Parallel()
	p := receiptProgram()
	w := p.tools(t)
	t.Run("holds", func(t *testing.T) {
		s := start(t, x402test.Honest)
		p.asShown(t, w, s)
		if notes := paysOnce(t, p, w, s, 1); !strings.Contains(notes, "The receipt holds: did:web:127.0.0.1%3A") {
			t.Errorf("stderr: %s", notes)
		}
	})
	t.Run("fails", func(t *testing.T) { failsLoudly(t, p, w, start(t, x402test.Refuse)) })
	for name, c := range map[string]struct {
		change func(http.Header, []byte) []byte
		says   string
	}{
		"a changed byte": {func(_ http.Header, body []byte) []byte {
			return bytes.Replace(body, []byte("mx1"), []byte("mx2"), 1)
		}, "The receipt DOES NOT HOLD: did:web:"},
		"another signature": {func(h http.Header, body []byte) []byte {
			changeReceipt(t, h, func(jws string) string { return jws[:len(jws)-4] + "AAAA" })
			return body
		}, "signature verification failed"},
		"none": {func(h http.Header, body []byte) []byte {
			changeReceipt(t, h, func(string) string { return "" })
			return body
		}, "No receipt came with this answer."},
	} {
		t.Run(name, func(t *testing.T) {
			o := runShown(t, p, w, behindStranger(t, c.change))
			if o.err == nil || !strings.Contains(o.notes, c.says) || !strings.Contains(o.out, `"domain": "example.com"`) {
				t.Errorf("%v\n%s\n%s", o.err, o.out, o.notes)
			}
		})
	}
}

// changeReceipt changes the receipt in the header of an answer; an empty one is
// taken away.
func changeReceipt(t *testing.T, h http.Header, change func(string) string) {
	t.Helper()
	settled, err := (x402test.Reply{Header: h}).Receipt()
	if err != nil {
		t.Error(err)
		return
	}
	jws := change(settled.Extensions.OfferReceipt.Info.Receipt.Signature)
	if settled.Extensions.OfferReceipt.Info.Receipt.Signature = jws; jws == "" {
		settled.Extensions = x402.ResponseExtensions{}
	}
	header, err := x402.EncodeHeader(settled)
	if err != nil {
		t.Error(err)
		return
	}
	h.Set(x402.HeaderResponse, header)
}

// behindStranger is a service whose own address leads through a stranger, who changes its
// answers.
func behindStranger(t *testing.T, change func(http.Header, []byte) []byte) service {
	t.Helper()
	stranger := httptest.NewUnstartedServer(nil)
	base := "http://" + stranger.Listener.Addr().String()
	w := newWorld(t, x402test.Honest, resolver(t, func() {}))
	addr := ""
	s := w.startSoon(t, func() {
		addr = testbed.FreeAddr(t)
		w.env["LOCAL_ADDR"], w.env["BASE_URL"] = addr, base
	})
	stranger.Config.Handler = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: addr}) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Header.Get(x402.HeaderSignature) == "" {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			body = change(r.Header, body)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return nil
		},
	}
	stranger.Start()
	t.Cleanup(stranger.Close)
	return s
}

// startSoon starts the service at a port that it had, or that was free: somebody may
// have it for a moment.
func (w *world) startSoon(t *testing.T, before func()) service {
	t.Helper()
	var last error
	for range 10 {
		before()
		s, err := w.tryStart(t)
		if err == nil {
			return s
		}
		last = err
	}
	t.Fatal(last)
	return service{}
}
