//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// TestPayWithoutANetwork runs "make pay" while the service can reach no resolver. The service
// then asks the client to wait for a minute. "make pay" must not wait: it must print the command
// that continues the payment, and end. After the resolver answers again, that command must get
// the answer without another transfer.
func TestPayWithoutANetwork(t *testing.T) {
	t.Parallel()
	skipInShort(t, "needs make")
	zone := testbed.ReadZone(t, zoneText)
	var connected atomic.Bool
	resolver := testbed.Resolver(t, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if connected.Load() {
			zone.ServeDNS(w, q)
		}
	}))
	service := makeRun(t, newcomerEnv("LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE="+filepath.Join(t.TempDir(), "ledger.db"), "DNS_RESOLVERS="+resolver))

	begun := time.Now()
	out, notes, code := runMake(t, newcomerEnv(), "pay", "URL="+service.URL+"/v1/tools/dns?domain=example.com&type=MX")
	t.Logf("it ended after %s", time.Since(begun))
	file := regexp.MustCompile(`(?m)^kept: +(\S+) `).FindStringSubmatch(notes)
	paid := regexp.MustCompile(`transaction (0x\w+), dns_timeout`).FindStringSubmatch(notes)
	if code == 0 || file == nil || paid == nil {
		t.Fatalf("exit status %d, stdout %s, stderr:\n%s", code, out, notes)
	}
	t.Cleanup(func() { testbed.Check(os.Remove(filepath.Join(root, file[1]))) })
	checkContains(t, "stderr", notes, "DNS_RESOLVERS=192.0.2.53 make run\n", "No answer yet; the payment is kept. From ", ": make pay AGAIN=.local/payments/")
	if strings.Contains(notes, "again in 1m") {
		t.Errorf("it waits for a minute:\n%s", notes)
	}

	connected.Store(true)
	out, notes, code = runMake(t, newcomerEnv(), "pay", "AGAIN="+file[1])
	checkEqual(t, "exit status", code, 0)
	checkContains(t, "stdout", out, `"exchange": "mx1.example.com"`)
	checkContains(t, "stderr", notes, "status:  200 OK, ", "transaction "+paid[1], "\nreceipt: valid: ")
}
