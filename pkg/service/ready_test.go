package service_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// memoryReadyStore is a ReadyStore in memory.
type memoryReadyStore struct {
	mu    sync.Mutex
	kept  service.KeptReady
	loads int
	err   error
}

func (s *memoryReadyStore) Load(context.Context) (service.KeptReady, error) {
	time.Sleep(5 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	return s.kept, s.err
}

func (s *memoryReadyStore) Claim(_ context.Context, loaded service.KeptReady, at time.Time) (bool, error) {
	time.Sleep(5 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.kept.Claimed.Equal(loaded.Claimed) {
		return false, nil
	}
	s.kept.Claimed = at
	return true, s.err
}

func (s *memoryReadyStore) Keep(_ context.Context, said []byte, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Checks, s.kept.Kept = said, at
	return s.err
}

// monitors sends requests for /ready to several processes that share a store.
type monitors struct {
	testing.TB
	store      *memoryReadyStore
	processes  []http.Handler
	probeRuns  atomic.Int32
	probeFails atomic.Bool
}

func newMonitors(t testing.TB, processes int) *monitors {
	c := &monitors{TB: t, store: &memoryReadyStore{}}
	probe := service.Probe{Name: service.ProbeFacilitator, Check: func(context.Context) error {
		c.probeRuns.Add(1)
		time.Sleep(time.Second)
		if c.probeFails.Load() {
			return fault.New(fault.FacilitatorUnavailable, nil)
		}
		return nil
	}}
	offering := service.Offering{Site: discovery.Site{Terms: testTerms()}}
	for range processes {
		c.processes = append(c.processes, service.Health(platform(), offering, nil, []service.Probe{probe}, c.store, map[string]string{"payee": "not yours"}))
	}
	return c
}

// burst requests /ready from every process at once, with many client addresses. It returns how
// often it got each answer.
func (c *monitors) burst() map[string]int {
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for i, process := range c.processes {
		all.Go(func() {
			r := httptest.NewRequestWithContext(c.Context(), http.MethodGet, "/ready", nil)
			r.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", i%250)
			w := httptest.NewRecorder()
			process.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			answers[strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body))]++
		})
	}
	all.Wait()
	return answers
}

// TestBurstAtReady checks that the probes run only once in fifteen seconds, however many
// processes and client addresses there are.
func TestBurstAtReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const processes = 200
		const warning = `"payee":{"status":"warning","message":"not yours"}}}`
		const well, failing = `200 {"status":"ready","checks":{"facilitator":{"status":"ok"},` + warning,
			`503 {"status":"not_ready","checks":{"facilitator":{"status":"failing","code":"facilitator_unavailable","message":"`
		c := newMonitors(t, processes)
		for n := range 4 {
			checkEqual(t, fmt.Sprintf("burst %d", n), c.burst()[well], processes)
			checkEqual(t, "probes", c.probeRuns.Load(), 1)
		}
		// The results are too old. The first process that gets a request runs the probes, and
		// the others still answer with the old results.
		time.Sleep(16 * time.Second)
		c.probeFails.Store(true)
		answers := c.burst()
		checkEqual(t, "with what stood", answers[well], processes-1)
		checkEqual(t, "probes", c.probeRuns.Load(), 2)
		time.Sleep(16 * time.Second)
		c.burst()
		for answer, n := range c.burst() {
			if !strings.HasPrefix(answer, failing) {
				t.Errorf("%d times %s", n, answer)
			}
		}
		checkEqual(t, "probes", c.probeRuns.Load(), 3)
		// Results that are older than a minute are no longer used: every process waits for the
		// one that runs the probes.
		time.Sleep(time.Hour)
		c.probeFails.Store(false)
		checkEqual(t, "after an hour", c.burst()[well], processes)
		checkEqual(t, "probes", c.probeRuns.Load(), 4)
	})
}

// TestReadyWithoutItsStore checks /ready if the store does not answer. The ledger must count
// as failing, and no probe may run. The test also checks what happens if a process ends while
// it runs the probes, and the store has no old results. The other processes must wait a few
// seconds and then report that the service is not ready.
func TestReadyWithoutItsStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const processes = 20
		c := newMonitors(t, processes)
		c.store.err = errors.New("throttled")
		for answer, n := range c.burst() {
			if n != processes || !strings.HasPrefix(answer, `503 {"status":"not_ready","checks":{"ledger":{"status":"failing","message":"ledger does not answer"}`) {
				t.Errorf("%d times %s", n, answer)
			}
		}
		checkEqual(t, "probes", c.probeRuns.Load(), 0)
		time.Sleep(16 * time.Second)
		c.store.err, c.store.kept = nil, service.KeptReady{Claimed: time.Now().Round(0)}
		begun := time.Now()
		for answer, n := range c.burst() {
			if n != processes || !strings.Contains(answer, "readiness is being looked at") {
				t.Errorf("%d times %s", n, answer)
			}
		}
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("they waited %s", took)
		}
		checkEqual(t, "probes", c.probeRuns.Load(), 0)
		time.Sleep(16 * time.Second)
		c.burst()
		checkEqual(t, "probes", c.probeRuns.Load(), 1)
	})
}
