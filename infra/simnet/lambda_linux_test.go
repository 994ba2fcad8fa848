package simnet

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
)

// deployed is the built functions as the template deploys them: one process
// for each event at a time, behind a gateway, over a DynamoDB table.
type deployed struct {
	runner
	host  *lambdahost.Host
	mu    sync.Mutex
	procs map[int]string // PID -> function
}

// deploy starts them in the internet. Their limits are off as the runner's are,
// and they know no chain.
func deploy(t *testing.T, n *internet) *deployed {
	t.Helper()
	d := &deployed{runner: runner{log: new(testbed.Output)}, procs: map[int]string{}}
	db := dynamotest.Start(t)
	d.host, d.url = testbed.Deployment{
		Functions: builtFunctions(),
		Parameters: map[string]string{
			"Ledger": db.Table(t), "FacilitatorUrl": testbed.StartFacilitator(t, nil).URL, "RpcUrl": "none", "RdapBootstrapUrl": n.bootstrap,
			"RateLimitPerMinute": "0", "ConcurrencySingle": "0", "ConcurrencyBundle": "0",
		},
		Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": db.URL, "SSL_CERT_FILE": n.ca.File},
		Configure: func(c *lambdahost.Config) {
			c.Logs = d.log
			c.OnSpawn = func(p lambdahost.Process) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.procs[p.PID] = p.Function
			}
		},
	}.Open(t)
	return d
}

// endedWell wants every invocation to have ended by itself, no crash in the
// logs, and no function to hold more memory than design §12 allows.
func (d *deployed) endedWell(t *testing.T) {
	t.Helper()
	for _, name := range d.host.Names() {
		if st := d.host.Stats(name); st.Errors != 0 {
			t.Errorf("%s: %d invocations failed, %d of them timed out", name, st.Errors, st.TimedOut)
		}
	}
	log := d.log.String()
	for _, bad := range []string{"panic", "fatal error"} {
		if at := strings.Index(log, bad); at >= 0 {
			t.Errorf("the functions' log says %q: %.2000s", bad, log[max(0, at-200):])
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	most := map[string]int{}
	for pid, name := range d.procs {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			most[name] = max(most[name], memory(t, pid, "VmHWM:"))
		}
	}
	for name, kib := range most {
		if kib > maxResident {
			t.Errorf("a process of %s held %d KiB, want %d at most", name, kib, maxResident)
		}
	}
	t.Logf("the most that a process of each function held, in KiB: %v", most)
}
