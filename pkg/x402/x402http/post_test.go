package x402http_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const drawURL = "http://shop.example/draw?size=2"

// openPostShop opens a shop with one POST handler, which answers with the body that it gets.
// It returns a counter of the handler's runs.
func (m *market) openPostShop(maxBytes int64, options ...x402http.Option) *atomic.Int32 {
	m.Helper()
	runs := &atomic.Int32{}
	mux := http.NewServeMux()
	m.seller().Handle(mux, "POST /draw", "0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		body := must(io.ReadAll(r.Body))
		_, _ = fmt.Fprintf(w, "%s of %d bytes: %s", r.Header.Get("Content-Type"), r.ContentLength, body)
	}), append(options, x402http.Post(maxBytes))...)
	m.shop = mux
	return runs
}

// post sends a body, with a payment if the signature is not empty.
func (m *market) post(contentType, body, signature string) x402test.Reply {
	m.Helper()
	return must(m.client.Post(m.Context(), drawURL, contentType, []byte(body), signature))
}

// signPost asks for the price of a POST, and signs a payment of that price.
func (m *market) signPost() string {
	m.Helper()
	offer := must(m.post("text/plain", "", "").Required())
	return must(m.client.Wallet.Pay(offer, time.Now()))
}

// form returns a multipart form with a random boundary.
func form(fields ...string) (contentType, body string) {
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	for i := 0; i < len(fields); i += 2 {
		part := must(w.CreateFormFile(fields[i], fields[i]+".txt"))
		_, _ = io.WriteString(part, fields[i+1])
	}
	_ = w.Close()
	return w.FormDataContentType(), text.String()
}

// TestPost checks which POST requests are the same purchase. Such requests get the answer from
// the ledger, with the same signature and with a new one. All other requests are separate
// purchases.
func TestPost(t *testing.T) {
	t.Parallel()
	type sent struct{ contentType, body string }
	photo := func(fields ...string) sent {
		contentType, body := form(fields...)
		return sent{contentType, body}
	}
	for name, c := range map[string]struct {
		first, second  sent
		isSamePurchase bool
	}{
		"the same JSON":                {sent{"application/json", `{"a":1}`}, sent{"application/json", `{"a":1}`}, true},
		"other JSON":                   {sent{"application/json", `{"a":1}`}, sent{"application/json", `{"a":2}`}, false},
		"another media type":           {sent{"application/json", `{"a":1}`}, sent{"text/plain", `{"a":1}`}, false},
		"the media type in other case": {sent{"application/json; charset=utf-8", `{}`}, sent{"Application/JSON;charset=utf-8", `{}`}, true},
		"another character set":        {sent{"text/plain; charset=utf-8", "ä"}, sent{"text/plain; charset=latin1", "ä"}, false},
		"nothing":                      {sent{"text/plain", ""}, sent{"text/plain", ""}, true},
		"the same form":                {photo("photo", "cat"), photo("photo", "cat"), true},
		"another photo":                {photo("photo", "cat"), photo("photo", "dog"), false},
		"another field":                {photo("photo", "cat"), photo("paint", "cat"), false},
		"two photos":                   {photo("a", "cat", "b", "dog"), photo("a", "cat", "b", "dog"), true},
		"photos the other way round":   {photo("a", "cat", "b", "dog"), photo("b", "dog", "a", "cat"), false},
		"no form":                      {sent{"multipart/form-data; boundary=x", "cat"}, sent{"multipart/form-data; boundary=x", "cat"}, true},
		"no boundary":                  {sent{"multipart/form-data", "cat"}, sent{"multipart/form-data", "dog"}, false},
		"no media type":                {sent{"; ;", "cat"}, sent{"; ;", "cat"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				runs := m.openPostShop(1 << 10)
				signature := m.signPost()
				answer := func(s sent) string { return fmt.Sprintf("%s of %d bytes: %s", s.contentType, len(s.body), s.body) }
				m.checkAnswer("the first", m.post(c.first.contentType, c.first.body, signature), answer(c.first), false)
				m.checkAnswer("again", m.post(c.first.contentType, c.first.body, signature), answer(c.first), true)
				if c.isSamePurchase {
					m.checkAnswer("the second", m.post(c.second.contentType, c.second.body, m.signPost()), answer(c.first), true)
					m.checkTransfers("10000")
				} else {
					m.checkRefused("the signature of the first", m.post(c.second.contentType, c.second.body, signature), "another request", true)
					m.checkAnswer("the second", m.post(c.second.contentType, c.second.body, m.signPost()), answer(c.second), false)
					m.checkTransfers("10000", "10000")
				}
				if want := map[bool]int32{true: 1, false: 2}[c.isSamePurchase]; runs.Load() != want {
					t.Errorf("%d runs, want %d", runs.Load(), want)
				}
			})
		})
	}
}

// compressingTransport is an http.RoundTripper that sends every request with a
// Content-Encoding.
type compressingTransport struct{ http.RoundTripper }

func (c compressingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Content-Encoding", "gzip")
	return c.RoundTripper.RoundTrip(r)
}

// TestPostEncoding checks that the content encoding of a body belongs to the purchase.
func TestPostEncoding(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		m.openPostShop(1 << 10)
		signature := m.signPost()
		m.post("text/plain", "cat", signature)
		m.client.HTTP = &http.Client{Transport: compressingTransport{m}}
		m.checkRefused("compressed", m.post("text/plain", "cat", signature), "another request", true)
	})
}

// unreadableBody is a body that must not be read.
type unreadableBody struct{ *testing.T }

// Read implements io.Reader.
func (u unreadableBody) Read([]byte) (int, error) {
	u.Error("the body was read")
	return 0, io.EOF
}

// sendBody sends a POST that states the given length of its body; -1 means that it states
// none.
func (m *market) sendBody(body io.Reader, length int64, signature string) x402test.Reply {
	r := httptest.NewRequest(http.MethodPost, drawURL, body)
	r.ContentLength = length
	if signature != "" {
		r.Header.Set(x402.HeaderSignature, signature)
	}
	w := httptest.NewRecorder()
	m.shop.ServeHTTP(w, r)
	return x402test.Reply{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
}

// TestPriceOfAPost checks that the price is given before the body is read.
func TestPriceOfAPost(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		m.openPostShop(10)
		for _, length := range []int64{-1, 0, 10} {
			if r := m.sendBody(unreadableBody{t}, length, ""); r.Status != http.StatusPaymentRequired {
				t.Errorf("without a payment, %d bytes: %d %s", length, r.Status, r.Body)
			}
		}
		if r := m.sendBody(unreadableBody{t}, 10, "not a payment"); r.Status != http.StatusPaymentRequired {
			t.Errorf("with what is no payment: %d %s", r.Status, r.Body)
		}
	})
}

// TestPostTooLong checks that a request whose body is too long is refused before money moves.
// If the request states that length, the body is not even read. A request whose body does not
// arrive is refused as well.
func TestPostTooLong(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		runs := m.openPostShop(10)
		signature := m.signPost()
		for name, r := range map[string]x402test.Reply{
			"announced":                    m.sendBody(unreadableBody{t}, 11, signature),
			"announced, without a payment": m.sendBody(unreadableBody{t}, 11, ""),
			"not announced":                m.sendBody(strings.NewReader(strings.Repeat("x", 11)), -1, signature),
		} {
			if r.Status != http.StatusRequestEntityTooLarge || !strings.Contains(string(r.Body), `"body_too_large","message":"The body is too long: it may have 10 bytes.","charged":false`) {
				t.Errorf("%s: %d %s", name, r.Status, r.Body)
			}
		}
		cut := io.MultiReader(strings.NewReader("x"), failingBody{})
		if r := m.sendBody(cut, 10, signature); r.Status != http.StatusBadRequest || !strings.Contains(string(r.Body), "did not arrive") {
			t.Errorf("cut: %d %s", r.Status, r.Body)
		}
		m.checkTransfers()
		if r := m.sendBody(strings.NewReader(strings.Repeat("x", 10)), -1, signature); r.Status != http.StatusOK {
			t.Errorf("of the most bytes: %d %s", r.Status, r.Body)
		}
		m.checkTransfers("10000")
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

// failingBody is the body of a client that has disconnected.
type failingBody struct{}

// Read implements io.Reader.
func (failingBody) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// TestBodyReadBefore checks a program whose middleware has read the body before the handler is
// reached. Purchases can then not be told apart. That is an error of the program, and nobody
// pays.
func TestBodyReadBefore(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*http.Request){
		"as a form":  func(r *http.Request) { _ = r.ParseForm() },
		"as a whole": func(r *http.Request) { _, _ = io.ReadAll(r.Body) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				m.openPostShop(1 << 10)
				signature, sold := m.signPost(), m.shop
				m.shop = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					read(r)
					sold.ServeHTTP(w, r)
				})
				r := m.post("application/x-www-form-urlencoded", "a=1", signature)
				if r.Status != http.StatusInternalServerError || m.countLogged("belongs behind what is sold") == 0 {
					t.Errorf("%d %s, log %s", r.Status, r.Body, m.log.String())
				}
				m.checkTransfers()
			})
		})
	}
}

// TestBodies checks that the check and each run of the handler get the whole body, and that a
// GET never has one.
func TestBodies(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		checked, failed := 0, false
		mux, s := http.NewServeMux(), m.seller()
		read := func(r *http.Request) string { return r.FormValue("a") + string(must(io.ReadAll(r.Body))) }
		s.Handle(mux, "POST /draw", "0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !failed {
				failed = true
				read(r)
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, read(r))
		}), x402http.Post(1<<10), x402http.Check(func(w http.ResponseWriter, r *http.Request) {
			checked++
			if got := read(r); got != "cat" {
				x402http.Refuse(w, http.StatusBadRequest, got)
			}
		}))
		s.Handle(mux, "GET /draw", "0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%d bytes: %s", r.ContentLength, must(io.ReadAll(r.Body)))
		}))
		m.shop = mux
		signature := m.signPost()
		m.post("application/x-www-form-urlencoded", "a=cat", signature)
		time.Sleep(2 * time.Second)
		m.checkAnswer("the second run", m.post("application/x-www-form-urlencoded", "a=cat", signature), "cat", false)
		if checked != 1 {
			t.Errorf("%d checks", checked)
		}
		r := httptest.NewRequest(http.MethodGet, drawURL, strings.NewReader("cat"))
		r.Header.Set(x402.HeaderSignature, m.sign(drawURL))
		w := httptest.NewRecorder()
		m.shop.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Body.String() != "0 bytes: " {
			t.Errorf("a GET with a body: %d %s", w.Code, w.Body)
		}
	})
}

// TestLongBodyOverAConnection checks a client that sends a body of a megabyte before it knows
// the price. It gets the price, and can pay on the same connection.
func TestLongBodyOverAConnection(t *testing.T) {
	t.Parallel()
	bank := httptest.NewServer(books())
	t.Cleanup(bank.Close)
	seller := must(x402http.New(x402http.Config{
		PayTo: payTo, Facilitator: bank.URL, Ledger: &ledgertest.Memory{}, NoNode: true, Origin: "http://shop.example",
		Log: slog.New(slog.DiscardHandler),
	}))
	mux := http.NewServeMux()
	seller.Handle(mux, "POST /draw", "0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, len(must(io.ReadAll(r.Body))))
	}), x402http.Post(4<<20))
	shop := httptest.NewUnstartedServer(mux)
	var connections atomic.Int32
	shop.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	shop.Start()
	t.Cleanup(shop.Close)
	client := &x402test.Client{HTTP: shop.Client(), Wallet: must(x402test.NewWallet(rand.Reader)), Now: time.Now}
	long := bytes.Repeat([]byte("x"), 1<<20)
	asked := must(client.Post(t.Context(), shop.URL+"/draw", "text/plain", long, ""))
	if asked.Status != http.StatusPaymentRequired {
		t.Fatalf("without a payment: %d %s", asked.Status, asked.Body)
	}
	signature := must(client.Wallet.Pay(must(asked.Required()), time.Now()))
	r := must(client.Post(t.Context(), shop.URL+"/draw", "text/plain", long, signature))
	if r.Status != http.StatusOK || string(r.Body) != fmt.Sprint(1<<20) {
		t.Errorf("paid: %d %s", r.Status, r.Body)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestPostThatWaits checks a client that waits for permission to send its body (Expect:
// 100-continue). It gets the price at once. Then the connection is closed, because nobody can
// tell whether the body is still coming.
func TestPostThatWaits(t *testing.T) {
	t.Parallel()
	shop := httptest.NewServer(newSeller().Sell("0.01", http.NotFoundHandler(), x402http.Post(1<<20), x402http.Named("draw")))
	t.Cleanup(shop.Close)
	connection := must(net.Dial("tcp", shop.Listener.Addr().String()))
	defer func() { _ = connection.Close() }()
	_ = must(fmt.Fprint(connection, "POST /draw HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"))
	r := must(http.ReadResponse(bufio.NewReader(connection), nil))
	if body := must(io.ReadAll(r.Body)); r.StatusCode != http.StatusPaymentRequired || !r.Close {
		t.Errorf("%d %v %s", r.StatusCode, r.Header, body)
	}
}

// TestRestOfALongBody checks that the connection is closed if a body was not read to its end,
// so that the rest of the body is not taken for the next request. Otherwise a stranger could
// put requests into the connection of a proxy.
func TestRestOfALongBody(t *testing.T) {
	t.Parallel()
	seller := must(x402http.New(x402http.Config{
		PayTo: payTo, Facilitator: "http://127.0.0.1:1", Ledger: &ledgertest.Memory{}, NoNode: true, Origin: "http://shop.example",
		Log: slog.New(slog.DiscardHandler),
	}))
	mux := http.NewServeMux()
	seller.Handle(mux, "POST /draw", "0.01", http.NotFoundHandler(), x402http.Post(1<<10))
	var hidden atomic.Int32
	mux.HandleFunc("GET /hidden", func(http.ResponseWriter, *http.Request) { hidden.Add(1) })
	shop := httptest.NewServer(mux)
	t.Cleanup(shop.Close)
	const next = "GET /hidden HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"
	for name, c := range map[string]struct {
		length, before string
		status         int
	}{
		"longer than what is sold":      {"Content-Length: 1000000", "", http.StatusRequestEntityTooLarge},
		"of a length that is not known": {"Transfer-Encoding: chunked", "f4240\r\n" + strings.Repeat("x", 300<<10), http.StatusPaymentRequired},
	} {
		connection := must(net.Dial("tcp", shop.Listener.Addr().String()))
		t.Cleanup(func() { _ = connection.Close() })
		_, _ = io.WriteString(connection, "POST /draw HTTP/1.1\r\nHost: shop.example\r\n"+c.length+"\r\n\r\n")
		answer := bufio.NewReader(connection)
		r := must(http.ReadResponse(answer, nil))
		if r.StatusCode != c.status {
			t.Errorf("%s: %s", name, r.Status)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(connection, c.before+next) // fails if the connection is closed already
		rest, _ := io.ReadAll(answer)
		if len(rest) > 0 || hidden.Load() > 0 {
			t.Errorf("%s: a part of the body was taken for a request: %q", name, rest)
		}
	}
}
