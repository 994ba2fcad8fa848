package browser

import (
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// zone is what the resolver knows; addresses are those of RFC 5737. Every
// other name does not exist, but those below refused.example.com: they are
// refused until they are healed.
const zone = `
$ORIGIN example.com.
$TTL 300
@    SOA  ns1.example.com. hostmaster.example.com. 2026110501 7200 900 1209600 300
www  A    192.0.2.10
www  A    192.0.2.11
www  AAAA 2001:db8::1
txt  TXT  "<script>window.owned = 1</script> \"quoted\" <img src=x onerror=owned=1> \226\128\174reversed\226\128\172"
healed.refused A 192.0.2.77
`

const refusedDomain = ".refused.example.com."

// resolver is the recursive resolver that the runner asks.
type resolver struct {
	addr string
	zone testbed.Zone

	mu     sync.Mutex
	healed bool
}

func newResolver(t *testing.T) *resolver {
	t.Helper()
	r := &resolver{zone: testbed.ReadZone(t, zone)}
	r.addr = testbed.Resolver(t, r)
	return r
}

func (r *resolver) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healed = true
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	r.mu.Lock()
	healed := r.healed
	r.mu.Unlock()
	if name, _, ok := testbed.Question(q); ok && strings.HasSuffix(name, refusedDomain) && !healed {
		m := testbed.Reply(q)
		m.Rcode = dns.RcodeRefused
		testbed.Send(w, q, m)
		return
	}
	r.zone.ServeDNS(w, q)
}
