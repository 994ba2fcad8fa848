package gameday

import (
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Operations by what they need.
var (
	tools   = []string{"dns", "ssl-check", "whois", "headers", "resolve-redirect"}
	bundles = []string{"host-intel", "uptime-check"}
)

// owedWith is what payers see who are owed: each operation's code, an answer
// where there is none.
func owedWith(codes map[string]fault.Code) func(string) sight {
	return func(op string) sight {
		if code, ok := codes[op]; ok {
			return refusal(code, "true", "true")
		}
		return sight{status: http.StatusOK}
	}
}

// timeouts are what each operation says of time that has run out.
func timeouts() map[string]fault.Code {
	return map[string]fault.Code{
		"dns": fault.DNSTimeout, "ssl-check": fault.SSLTimeout, "whois": fault.WhoisTimeout, "headers": fault.HeadersTimeout,
		"resolve-redirect": fault.RedirectTimeout, "host-intel": fault.HostIntelTimeout, "uptime-check": fault.UptimeCheckTimeout,
	}
}

// lookupScenarios are those in which money is taken and there is no answer.
func lookupScenarios() []scenario {
	unreachable, silent := timeouts(), timeouts()
	unreachable["dns"] = fault.UpstreamUnavailable
	for _, codes := range []map[string]fault.Code{unreachable, silent} {
		for _, slug := range bundles { // what fails is in their fields
			delete(codes, slug)
		}
	}
	looks := slices.Concat(tools, bundles)
	return []scenario{{
		name: "the resolvers cannot be reached", ops: looks, payers: several, together: true, rounds: 4, stable: true, ready: http.StatusServiceUnavailable,
		breaks: func(w *world, _ []*payer) error { w.resolvers.shut(); return nil },
		mends:  func(w *world) error { return w.resolvers.open() },
		sees:   owedWith(unreachable),
		fires:  []string{"resolvers", "owed"},
	}, {
		name: "the resolvers say nothing", ops: looks, payers: several, together: true, rounds: 2, stable: true, ready: http.StatusServiceUnavailable,
		breaks: func(w *world, _ []*payer) error { w.resolvers.mute.Store(true); return nil },
		mends:  func(w *world) error { w.resolvers.mute.Store(false); return nil },
		sees:   owedWith(silent),
		fires:  []string{"resolvers", "owed", "latency"},
	}, {
		name: "the registry turns us away (429)", ops: []string{"whois", "host-intel"}, payers: several, stable: true,
		breaks: func(w *world, _ []*payer) error { w.registry.limited.Store(true); return nil },
		mends:  func(w *world) error { w.registry.limited.Store(false); return nil },
		sees:   owedWith(map[string]fault.Code{"whois": fault.RDAPUpstream}),
		fires:  []string{"owed"},
	}, {
		name: "functions are frozen in the middle of a lookup", ops: looks, payers: several, together: true,
		breaks: freeze,
		mends: func(w *world) error {
			w.resolvers.mute.Store(false)
			w.table.breaks(tableFault{})
			return nil
		},
		sees:  owedWith(timeouts()),
		fires: []string{"owed", "latency"},
		// The table's answer and the end of the time for it wait side by side
		// for a process that goes on, and which one it sees first is open.
		may: []string{"ledger-faults"},
	}}
}

// frozenFor is longer than any lookup may take, and leaves the invocation time
// to end well.
const frozenFor = 12500 * time.Millisecond

// freeze stops the process of each payment as soon as the settlement is on
// record, while its lookup waits for resolvers that say nothing, and lets it go
// on much later.
func freeze(w *world, _ []*payer) error {
	w.resolvers.mute.Store(true)
	var mu sync.Mutex
	frozen := map[string]bool{}
	w.table.breaks(tableFault{wrote: func(c call) {
		p := w.payer(c.payer)
		if p == nil || c.state != ledger.Settled {
			return
		}
		mu.Lock()
		twice := frozen[c.payer]
		frozen[c.payer] = true
		mu.Unlock()
		if twice {
			return
		}
		group := -w.process(p.signature).PID
		if err := syscall.Kill(group, syscall.SIGSTOP); err != nil {
			w.Errorf("freeze %s: %v", p.op.Slug, err)
		}
		time.AfterFunc(frozenFor, func() { _ = syscall.Kill(group, syscall.SIGCONT) }) // it may be gone
	}})
	return nil
}
