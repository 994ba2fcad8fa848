package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestMain runs up to 12 tests in parallel, because they mostly wait for leases to end.
func TestMain(m *testing.M) {
	testbed.Parallel(12)
	os.Exit(m.Run())
}

// usedPorts holds the ports of the addresses that the function address has returned so far.
var usedPorts sync.Map

// address returns an address on which no program listens. After a kill, the seller under test
// must be able to listen on this address again, although other tests start servers meanwhile.
// So the port is from a range that the system does not use for servers that ask for any free
// port.
func address(t *testing.T) string {
	t.Helper()
	const low, high = 20_000, 32_000 // this range is below the ports that Linux assigns
	for {
		port := low + rand.IntN(high-low)
		if _, given := usedPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		l.Close()
		return l.Addr().String()
	}
}

// runJudge runs the command judge. It returns the exit status, and what the command printed to
// standard output and to standard error.
func runJudge(t *testing.T, args ...string) (status int, out, notes string) {
	t.Helper()
	var printed, noted bytes.Buffer
	as := called.Here(func(string) string { return "" }, "judge")
	status = run(t.Context(), append([]string{"judge"}, args...), as, &printed, &noted)
	return status, printed.String(), noted.String()
}

// forgetfulSeller returns the command line of the demo seller infra/demo/thirty, which keeps
// no record of payments.
func forgetfulSeller(t *testing.T) string {
	t.Helper()
	return "PAY_TO=" + testbed.Account(1) + " exec " + testbed.Program(t, "./infra/demo/thirty")
}

// TestForgetful judges a seller that keeps no record of payments, and so charges some
// purchases twice. The judge must call this a broken promise only if the seller promises to
// charge each purchase once. Two runs with the same seed must give the same report.
func TestForgetful(t *testing.T) {
	t.Parallel()
	forgetful := forgetfulSeller(t)
	judgeWith := func(flags ...string) (status int, out, notes string) {
		addr := address(t)
		args := append([]string{"-url", "http://" + addr + "/weather", "-price", "0.005", "-hold", "2s", "-slow", "1s"}, flags...)
		return runJudge(t, append(args, "LOCAL_ADDR="+addr+" "+forgetful)...)
	}
	status, out, notes := judgeWith("-row", "clean,reply-lost,kill-while,refused")
	if status != exitHeld || !strings.Contains(out, "2/1 not promised") || !strings.Contains(out, "-row reply-lost -v") {
		t.Errorf("without a promise: %d\n%s\n%s", status, out, notes)
	}
	status, out, notes = judgeWith("-row", "reply-lost", "-v", "-promises", "same,new")
	for _, said := range []string{"the reply is lost", "the payer signs payment 2", "2/1 BROKEN", "against the promise same", "2/1 not promised"} {
		if status != exitBroken || !strings.Contains(out, said) {
			t.Errorf("with promises: %d, without %q\n%s\n%s", status, said, out, notes)
		}
	}
	status, out, notes = judgeWith("-row", "reply-lost", "-format", "markdown", "-promises", "same")
	if status != exitBroken || !strings.Contains(out, "| 2/1 **broken** | 2/1 not promised |") {
		t.Errorf("in Markdown: %d\n%s\n%s", status, out, notes)
	}
	_, first, _ := judgeWith("-format", "json", "-seed", "7")
	_, second, _ := judgeWith("-format", "json", "-seed", "7")
	if first != second || len(first) < 10_000 {
		t.Errorf("two runs with one seed differ:\n%s\n%s", first, second)
	}
}

// TestNotJudged checks what the command says if it cannot judge a seller, and that its exit
// status is then exitNotJudged.
func TestNotJudged(t *testing.T) {
	t.Parallel()
	forgetful := forgetfulSeller(t)
	busy := testbed.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer busy.Close()
	addr := address(t)
	url := "http://" + addr + "/weather"
	template := filepath.Join(t.TempDir(), "template")
	testbed.Check(os.WriteFile(template, []byte("url={facilitator}\n"), 0o600))
	for what, c := range map[string]struct {
		args      []string
		wantNotes string
	}{
		"nothing":            {nil, "usage:"},
		"no seller":          {[]string{"-url", url}, "usage:"},
		"no URL":             {[]string{"-url", "weather", "true"}, "is not a URL such as"},
		"a stranger's URL":   {[]string{"-url", "https://shop.example/", "true"}, "must be an http URL of this machine"},
		"two origins":        {[]string{"-url", url, "-other", "http://127.0.0.1:1/", "true"}, "not of one origin"},
		"another row":        {[]string{"-url", url, "-row", "rain", "true"}, `there is no row "rain"; there are: clean`},
		"another promise":    {[]string{"-url", url, "-promises", "much", "true"}, `there is no promise "much"`},
		"another way":        {[]string{"-url", url, "-way", "out", "true"}, `there is no way "out"`},
		"another format":     {[]string{"-url", url, "-format", "xml", "true"}, "must be text, markdown or json"},
		"another network":    {[]string{"-url", url, "-network", "eip155:1", "true"}, "nothing is known of the network eip155:1"},
		"the other network":  {[]string{"-url", url, "-network", x402.BaseSepolia, "LOCAL_ADDR=" + addr + " " + forgetful}, "it wants exact on eip155:8453, and must want exact on eip155:84532"},
		"no template":        {[]string{"-url", url, "-file", "config", "true"}, "must be TEMPLATE=TARGET"},
		"a seller that ends": {[]string{"-url", url, "echo so; exit 3"}, "ended before it took requests at " + addr + "; it printed:\nso"},
		"a busy address":     {[]string{"-url", "http://" + busy.Addr().String() + "/", "true"}, "another program listens at"},
		"another price":      {[]string{"-url", url, "-price", "0.02", "LOCAL_ADDR=" + addr + " " + forgetful}, "asks for 0.005, and not for 0.02"},
		"a config file":      {[]string{"-url", url, "-file", template + "=" + template + ".out", fmt.Sprintf("cat %s.out; exit 1", template)}, "it printed:\nurl=http://127.0.0.1:"},
	} {
		status, out, notes := runJudge(t, c.args...)
		if status != exitNotJudged || !strings.Contains(notes, c.wantNotes) {
			t.Errorf("%s: %d, %s\n%s", what, status, out, notes)
		}
	}
}
