package e2e

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// TestLoadConcurrency: with a cap of ten on the tool, eight processes never look
// up more than five names at once for one client, who may have half. Who finds no
// place is not charged, and everybody is answered in the end.
func TestLoadConcurrency(t *testing.T) {
	verifyOnly(t, "needs Node for the DynamoDB server")
	fairly(t, fillPlaces)
}

// fillPlaces holds the lookups in all places until everybody else was told that
// there is none. They wait for a part of a lookup's time, or it is void.
func fillPlaces(t testing.TB, p *pace) {
	t.Helper()
	const places, payers = 5, 25
	l := newLab(t)
	s := l.setup()
	s.single = strconv.Itoa(2 * places)
	f := newFleet(t, l, s)
	b := newBatch(t, l, f, payers, modeHeld)

	// Nobody who is looking up comes out before everybody else has been told
	// that all places are taken.
	full := fails(fault.Overloaded) // charged false, retryable
	var turned sync.Map             // payment -> the first answer that no place is free
	var n atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	ended := make(chan error, 1)
	begun := time.Now()
	go func() {
		ended <- crowd(payers, payers, func(i int) error {
			return b.persist(ctx, &b.payments[i], func(e exchange) {
				if codeOf(e) != string(fault.Overloaded) {
					return
				}
				if _, again := turned.LoadOrStore(i, e); !again {
					n.Add(1)
				}
			})
		})
	}()
	poll(t, "every place to be taken and everybody else to be told", func() bool {
		inside, _ := l.dns.held()
		return inside == places && n.Load() >= payers-places
	})
	all, _ := l.facilitator.Settles()
	is(t, "settlements while all places are taken", all, places)
	for i := range b.payments {
		l.dns.gate(b.payments[i].name).open()
	}
	if waited := time.Since(begun); waited > crowdTime {
		p.took(waited)
	}
	if err := <-ended; err != nil {
		t.Fatalf("not everybody was answered: %v", err)
	}
	turned.Range(func(_, e any) bool {
		b.check(e.(exchange), full)
		return true
	})
	b.audit(t)
	if unused := len(b.unused(t)); unused > f.said("answer not recorded") {
		t.Errorf("%d records are not redeemed", unused)
	}
	if _, peak := l.dns.held(); peak != places {
		t.Errorf("%d lookups at once, a client may have %d", peak, places)
	}
	t.Logf("%d payers, %d places over %d processes: %s", payers, places, fleetSize, b.waits())
}

// TestLoadRate: the ceiling of a client's minute is the limit plus a tenth for
// each process (design §6), and the limit is not undercut. Every process is asked as
// often as the limit is for all of them together.
func TestLoadRate(t *testing.T) {
	verifyOnly(t, "needs Node for the DynamoDB server")
	const limit, ceiling, clients = 20, 20 + fleetSize*20/10, 8
	l := newLab(t)
	s := l.setup()
	s.rate = strconv.Itoa(limit)
	f := newFleet(t, l, s)
	for client := range clients {
		failed := f.said("rate limit store failed")
		(&run{TB: t}).step(earlyInTheMinute())
		begun := time.Now()
		passed := storm(t, l, f, "127.0.0."+strconv.Itoa(client+1), limit)
		if !time.Now().Truncate(time.Minute).Equal(begun.Truncate(time.Minute)) || f.said("rate limit store failed") > failed {
			// A store call above its time-out lets requests pass, by design, and so
			// does another minute: another client comes.
			t.Logf("client %d: void: the store was late, or the minute was over", client)
			continue
		}
		if passed < limit || passed > ceiling {
			t.Errorf("%d requests passed, the limit is %d and the ceiling %d", passed, limit, ceiling)
		}
		t.Logf("%d of %d requests passed in %s, the limit is %d, the ceiling %d",
			passed, limit*fleetSize, time.Since(begun).Round(time.Millisecond), limit, ceiling)
		return
	}
	t.Error("the store was late for every client")
}

// storm asks every process at once, each of them one request after the other,
// and returns how many requests passed.
func storm(t *testing.T, l *lab, f *fleet, from string, each int) int {
	t.Helper()
	client := newClient()
	client.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext
	defer client.CloseIdleConnections()
	answers := make([]exchange, each*len(f.members))
	if err := crowd(len(f.members), len(f.members), func(m int) (err error) {
		for i := range each {
			if answers[m*each+i], err = f.members[m].send(t.Context(), client, http.MethodGet, catalog.DNS().Path, nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	passed := 0
	s := subject{op: catalog.DNS(), origin: fleetOrigin, terms: l.terms}
	for _, e := range answers {
		w := fails(fault.RateLimited)
		if e.status == http.StatusPaymentRequired {
			passed, w = passed+1, unpaid()
		}
		check(t, e, w, s)
	}
	return passed
}
