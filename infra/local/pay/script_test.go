package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

var update = flag.Bool("update", false, "write into the scripts what is printed")

// TestScripts runs the scripts of testdata. They contain command lines of "make pay". After each
// command line come the notes (standard error), the standard output, the error, and the numbers
// of signatures that were sent and kept. The error is marked "typed:" if the command line is
// wrong. No output may steer the terminal. If a section keeps one payment, that payment must
// have the URL of the service, and all signed requests must have the payment's signature and
// Idempotency-Key. A section begins with its name and these settings:
//
//	% STATUS [RETRY-AFTER] CODE|BODY  an answer to a signature; the last answer is repeated
//	% header NAME: VALUE              a header of these answers; JSON is sent in base64
//	% offer JSON, % accepts JSON      changes of the offer, or of its way to pay
//	% first STATUS [BODY]             the answer to a request without a signature, instead of an offer
//	% speaks TEXT                     the text that every connection gets, instead of HTTP
//	% nobody                          the service is closed before the commands run
//	% types TEXT                      the input at the terminal; without this line there is no terminal
//	% stop N                          Ctrl-C in the Nth wait, or at the question if N is 0
func TestScripts(t *testing.T) {
	t.Parallel()
	testbed.Scripts(t, *update, newScripted)
}

// scripted is one section of a script.
type scripted struct {
	t      *testing.T
	server *service
	script []answer
	header http.Header
	offer  x402.PaymentRequired
	first  *answer
	host   string
	in     io.Reader
	stopAt int
	dir    string
	file   string // the path of a file with a private key
}

func newScripted(t *testing.T) testbed.Script {
	s := &scripted{t: t, header: http.Header{}, offer: usualOffer(), dir: filepath.Join(t.TempDir(), "payments"), file: filepath.Join(t.TempDir(), "key"), stopAt: -1}
	s.server = sell(t, func(w http.ResponseWriter, n int) {
		for name := range s.header {
			w.Header().Set(name, s.header.Get(name))
		}
		s.script[min(n, len(s.script)-1)].write(w)
	})
	sells := s.server.Config.Handler
	s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.first != nil {
			w.Header().Set("Location", "https://example.com/a\u202eb")
			s.first.write(w)
			return
		}
		sells.ServeHTTP(w, r)
	})
	s.host = strings.TrimPrefix(s.server.URL, "http://")
	nobody, err := os.Open(os.DevNull)
	must(t, err, os.WriteFile(s.file, []byte(key1), 0o600))
	s.in = nobody
	return s
}

// answerOf parses an answer of a script.
func answerOf(text string) (a answer) {
	fields := strings.SplitN(text, " ", 3)
	if _, err := fmt.Sscan(fields[0], &a.status); err != nil {
		panic(fmt.Sprintf("%q is not an answer: %v", text, err))
	}
	a.body = fields[len(fields)-1]
	switch {
	case len(fields) == 1:
		a.body = ""
	case len(fields) == 3 && strings.Trim(fields[1], "0123456789") == "":
		a.retry = fields[1]
	case len(fields) == 3:
		a.body = fields[1] + " " + fields[2]
	}
	if regexp.MustCompile(`^[a-z_]+$`).MatchString(a.body) {
		a.body = errorJSON(a.body)
	}
	return a
}

func (s *scripted) Prepare(text string) {
	flood := strings.Repeat("\u009b2J", 20_000)
	text = strings.NewReplacer(`\e`, "\x1b", `\n`, "\n", `\r`, "\r", `\x9b`, "\x9b", "$STEER", steering, "$FLOOD", flood,
		"$DIGITS", strings.Repeat("9", 100_000)).Replace(text)
	what, rest, _ := strings.Cut(text, " ")
	switch what {
	case "header":
		name, value, _ := strings.Cut(rest, ": ")
		if strings.HasPrefix(value, "{") {
			value = base64.StdEncoding.EncodeToString([]byte(value))
		}
		value = strings.ReplaceAll(value, "\x7f", "") // net/http refuses this character in a header
		s.header.Set(name, strings.ReplaceAll(value, "$S", s.server.URL))
	case "offer":
		must(s.t, json.Unmarshal([]byte(rest), &s.offer))
		s.server.offer = encodeOffer(s.t, s.offer)
	case "accepts":
		must(s.t, json.Unmarshal([]byte(rest), &s.offer.Accepts[0]))
		s.server.offer = encodeOffer(s.t, s.offer)
	case "first":
		a := answerOf(rest)
		s.first = &a
	case "speaks":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(s.t, err)
		s.t.Cleanup(func() { l.Close() })
		s.host = l.Addr().String()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(c)) // an error is ignored, because the text is sent after any input
				_, _ = c.Write([]byte(rest))                // an error means that the client has hung up
				c.Close()
			}
		}()
	case "nobody":
		s.server.Close()
	case "types":
		s.in = strings.NewReader(rest)
	case "stop":
		fmt.Sscan(rest, &s.stopAt)
	default:
		s.script = append(s.script, answerOf(text))
	}
}

func (s *scripted) Command(line string) string {
	o := options{dir: s.dir}
	values := map[string]*string{
		"URL": &o.url, "KEY": &o.key, "KEY_FILE": &o.keyFile, "MAX": &o.max, "AGAIN": &o.again, "DIR": &o.dir, "LOCAL_ADDR": &o.local,
	}
	for arg := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(arg, "=")
		value = strings.NewReplacer("$S", "http://"+s.host, "$HOST", s.host, "$FILE", s.file, "$KEY1", key1, `\e`, "\x1b", "$LONG", strings.Repeat("a", 10_000)).Replace(value)
		if of := values[name]; of != nil {
			*of = value
		}
		o.yes, o.verbose = o.yes || name == "YES", o.verbose || name == "V"
	}
	b := newBuyer(s.t, s.server.URL, "")
	b.in, b.stopAt = s.in, s.stopAt
	if s.stopAt == 0 {
		silent, end := io.Pipe()
		s.t.Cleanup(func() { end.Close() })
		b.in, b.payer.notes = silent, questionStopper{b}
	}
	sent := s.server.sent()
	err := b.runStoppable(s.t, func(ctx context.Context) error { return b.run(ctx, o) })
	said := b.notes.String()
	if b.out.Len() > 0 {
		said += "stdout:\n" + b.out.String()
	}
	switch {
	case errors.Is(err, errUsage):
		said += "typed: " + err.Error() + "\n"
	case err != nil:
		said += "error: " + err.Error() + "\n"
	}
	said += fmt.Sprintf("signatures sent: %d, kept: %d\n", s.server.sent()-sent, s.kept(o))
	if where := findSteering(said); where != "" || strings.Contains(said, key1[40:]) || len(said) > 4096 && !o.verbose {
		s.t.Errorf("%d bytes steer the terminal, or show a key: %s", len(said), where)
	}
	said = regexp.MustCompile(`(Get "\S+": ).*`).ReplaceAllString(said, "${1}...") // net/http's error text varies
	said = strings.NewReplacer(s.host, "$HOST", s.dir, "$DIR", s.file, "$FILE").Replace(said)
	_, port, _ := net.SplitHostPort(s.host)
	var n int
	fmt.Sscan(port, &n)
	said = strings.ReplaceAll(said, fmt.Sprintf("127.0.0.1:%d", n-1), "$BEFORE")
	said = regexp.MustCompile(`(payer:   )0x[0-9a-fA-F]{40}`).ReplaceAllString(said, "${1}PAYER")
	said = regexp.MustCompile(`("(?:from|nonce|signature|validAfter|validBefore)": )"[0-9a-fA-Fx]+"`).ReplaceAllString(said, "$1...")
	return regexp.MustCompile(`(\$DIR/)\S+\.json`).ReplaceAllString(said, "${1}KEPT")
}

// kept returns the number of kept payments. If one payment is kept, its signature, key and
// address are compared with the requests that arrived.
func (s *scripted) kept(o options) int {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	must(s.t, err)
	for _, name := range files {
		p, err := readPayment(name)
		must(s.t, err)
		if len(files) == 1 && s.server.sent() > 0 && o.again == "" {
			checkKept(s.t, []payment{p}, s.server, strings.ReplaceAll(o.url, "$S", "http://"+s.host))
		}
	}
	return len(files)
}

// questionStopper collects the notes of a buyer. When the notes end with the question whether
// to pay, it stops the buyer.
type questionStopper struct{ *buyer }

func (s questionStopper) Write(b []byte) (int, error) {
	if strings.HasSuffix(string(b), "[y/N] ") {
		s.stop()
	}
	return s.buyer.notes.Write(b)
}
