package simnet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type oracle struct {
	path      string
	questions []string // names, and what else it is asked about them
	// ask gets both answers to a question and compares them.
	ask func(t *testing.T, question string, a *agreement)
}

// agrees compares answers with what other programs say about the same hosts.
// Where they differ, the differences are listed with the reason: one that is
// not listed fails, and so does one that is listed and gone.
func agrees(t *testing.T, n *internet, r *runner) {
	if err := useResolvers(t.TempDir()); err != nil {
		t.Fatalf("programs do not know this internet's names: %v", err)
	}
	n.forget()
	for tool, o := range map[string]oracle{"dig": digOracle(n), "openssl": opensslOracle(n), "curl": curlOracle(n), "rdap": rdapOracle(t, n)} {
		t.Run("with "+tool, func(t *testing.T) {
			testbed.Find(t, tool, o.path)
			t.Parallel()
			a := &agreement{runner: r, differ: map[string]string{}}
			t.Run("hosts", func(t *testing.T) {
				for _, q := range o.questions {
					t.Run(q, func(t *testing.T) {
						t.Parallel()
						o.ask(t, q, a)
					})
				}
			})
			a.settle(t, tool)
		})
	}
}

type agreement struct {
	*runner
	mu     sync.Mutex
	same   int
	differ map[string]string // "host field" -> both values
}

// compare notes one field of one host, whose name is shortened as in the list.
func (a *agreement) compare(host, field, ours, theirs string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ours == theirs {
		a.same++
		return
	}
	key := strings.Replace(host, ".example.com", "", 1) + " " + field
	a.differ[key] = fmt.Sprintf("%.300q, the other says %.300q", ours, theirs)
}

func (a *agreement) settle(t *testing.T, tool string) {
	for _, d := range differences()[tool] {
		for host := range strings.FieldsSeq(d.hosts) {
			for field := range strings.FieldsSeq(d.fields) {
				key := host + " " + field
				if a.differ[key] == "" {
					t.Errorf("%s is said to differ (%s) and does not", key, d.why)
				}
				delete(a.differ, key)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.differ)) {
		t.Errorf("%s is %s", key, a.differ[key])
	}
	if a.same < 80 {
		t.Errorf("only %d values were compared and equal", a.same)
	}
}

// lookUp pays for an answer. It returns its values, see valuesOf, and the error's code.
func (a *agreement) lookUp(t *testing.T, op catalog.Operation, domain, more string) (got map[string]any, code string) {
	late := func(x402test.Reply) bool { // by the table, the host makes some operation run out of time
		return slices.ContainsFunc(tableRows(), func(r row) bool { return r.domain == domain && strings.HasSuffix(string(r.code()), "_timeout") })
	}
	reply := a.buyUntil(t, op.Path+"?domain="+domain+more, late)
	got = valuesOf(reply.Body)
	if reply.Status != http.StatusOK {
		code = fmt.Sprint(got["error.code"])
	}
	return got, code
}

// listed are the texts of a value that is a list, a text or null.
func listed(v any) (all []string) {
	list, ok := v.([]any)
	if !ok && v != nil {
		list = []any{v}
	}
	for _, x := range list {
		all = append(all, fmt.Sprint(x))
	}
	return all
}

// run runs a program for some time at most. The status is -1 when it had to be ended.
func run(t *testing.T, limit time.Duration, env []string, stdin string, name string, args ...string) (out string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	b, err := cmd.Output()
	var exit *exec.ExitError
	if ctx.Err() != nil && err != nil { // also when it ended by itself just then, or was not started before
		return string(b), -1
	}
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// patiently asks with a limit in seconds, and once more with a longer one where a program was
// late and the service was not: perhaps this machine is slow, and not the host.
func patiently(code string, late func(status int) bool, ask func(seconds int) (string, int)) (out string, status int) {
	if out, status = ask(6); late(status) && !strings.HasSuffix(code, "_timeout") {
		out, status = ask(40)
	}
	return out, status
}

// comparedNames are those of the hosts that a program is asked about, which listen or could.
func (n *internet) comparedNames(tool string) []string {
	var names []string
	for _, h := range n.comparedWith(tool) {
		if h.addrs != nil {
			names = append(names, h.name)
		}
	}
	return names
}

func at443(address string) string {
	return netip.AddrPortFrom(netip.MustParseAddr(address), 443).String()
}

// difference is where another program says something else than the service, and why the service
// is right to. Names under example.com are without it, and with the type that dig asked for.
type difference struct {
	hosts, fields, why string
}

func differences() map[string][]difference {
	return map[string][]difference{
		"dig": {
			{"refusedfirst/A servfailnx/A silentfirst/A nxalone/A nomx/MX", "rcode", "dig asks one resolver, the service all three"},
			{"rpz/A portal/A nxapex/A", "rcode", "dig takes an NXDOMAIN without proof, the service asks the next resolver"},
			{"formerr/A notimp/A", "rcode", "dig does not ask without EDNS unless told to"},
			{"fourbytes/AAAA", "rcode", "dig shows what it could read of a damaged reply"},
			{"twoaliases/CNAME", "ttl records", "dig shows the second alias, too, which is another name's"},
			{"udpsilent/A", "rcode", "dig does not ask over TCP unless told to; the service does, before it gives up"},
			{"liecase/A", "rcode", "the service draws the letter case of its question and wants it back"},
			{"dname.zone/CNAME", "ttl", "the lowest TTL here counts records that the name asked for does not lead to"},
			{"turning/A", "records", "the second to ask gets another answer"},
		},
		"openssl": {
			{"junkchain", "certificate", "openssl ends the handshake at a chain that it does not take, and shows nothing; the leaf was there"},
			{"oddversion", "certificate", "openssl shows the certificate of a handshake that went on; the service that of one that did not"},
			{"rc4", "certificate", "this build of openssl does not have the cipher"},
			{"yassl", "certificate", "openssl ends the handshake at a choice that it did not offer"},
			{"brainpool", "certificate", "openssl offers these curves when it is told to"},
			{"old", "certificate", "openssl makes one offer, with TLS 1.3 in it"},
		},
		"curl": {
			{"head405", "status server", "curl -I does not ask again with GET"},
			{"spacefirst statustwice", "outcome", "this curl ends there; later ones take the first, browsers both"},
			{"folded", "server", "curl -I prints a folded line as it came"},
			{"truncated", "outcome", "what more the head would have said is not known, so browsers do not take it over TLS either"},
			{"control", "server", "curl prints control bytes, which are not part of a value (RFC 9110 §5.5)"},
			{"nofield", "outcome", "curl ends at a line without a colon; browsers pass over it"},
			{"headers", "cache-control server", "repeated list headers are joined, and ISO 8859-1 is read as such"},
			{"hole", "outcome", "a connection that is not made in its time is connect_failed"},
			{"mtls13", "outcome", "in TLS 1.3 a server refuses after the client has finished; it is the handshake all the same"},
			{"rc4", "outcome", "the same, with which this curl is built"},
			{"old", "outcome", "curl makes one offer, with TLS 1.3 in it"},
		},
		"rdap": {
			{"another.com", "answer", "the command does not ask whether the answer is about the name"},
			{"huge.com", "answer", "the service reads 1 MiB"},
			{"co.uk", "answer", "the command does not lower the bootstrap file's letters"},
			{"noleap.com", "created_at", "the command prints dates as they are; the service gives none that it cannot read"},
			{"listparams.com shortproperty.com nestedcard.com", "registrar.name", "the command drops a jCard for one malformed property"},
			{"withinabuse.com", "registrar.name", "the command looks for a name on the registrar's own entity only"},
			{"nozone.com", "created_at", "the command prints dates as they are; without a zone they are UTC"},
			{"example.kg", "expires_at", "the command knows the expiration under its standard name only"},
		},
	}
}
