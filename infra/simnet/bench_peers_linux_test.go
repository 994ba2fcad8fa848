package simnet

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// peersPath names the program of infra/bench that does the same lookups with
// the libraries and tools of others.
var peersPath = flag.String("peers", "", "the built program of infra/bench, for the table of times")

// peers is that program at work where the service is.
type peers struct {
	ask func(t *testing.T, c trip) []timing
}

// timing is how long one of them took, or why there is no time.
type timing struct {
	Peer  string  `json:"peer"`
	MS    float64 `json:"ms"`
	Error string  `json:"error"`
}

func (a timing) took() time.Duration { return time.Duration(a.MS * float64(time.Millisecond)) }

// startPeers starts it; without it the table has our times only. It takes a
// line "operation domain" and gives one with an array of answers.
func startPeers(t *testing.T, n *internet) peers {
	t.Helper()
	if *peersPath == "" {
		return peers{ask: func(*testing.T, trip) []timing { return nil }}
	}
	cmd := exec.Command(*peersPath, "peers", "-bootstrap", n.bootstrap, "-resolver", resolverAddrs()[0])
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File)
	cmd.Stderr = os.Stderr
	questions, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.far.start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		questions.Close() // at which it ends
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", *peersPath, err)
		}
	})
	lines := bufio.NewReader(answers)
	return peers{ask: func(t *testing.T, c trip) []timing {
		t.Helper()
		var all []timing
		_, err := fmt.Fprintln(questions, c.op.Slug, c.domain)
		if err == nil {
			var line []byte
			if line, err = lines.ReadBytes('\n'); err == nil || err == io.EOF {
				err = json.Unmarshal(line, &all)
			}
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", *peersPath, c.op.Slug, err)
		}
		return all
	}}
}
