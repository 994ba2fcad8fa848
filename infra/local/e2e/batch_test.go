package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// loadAtOnce is how many of those are under way at any moment who come again.
// The first time all come at once.
const loadAtOnce = 64

// batch is many payments of one payer to a fleet.
type batch struct {
	*run
	f        *fleet
	payments []purchase

	mu   sync.Mutex
	told map[string]int // code -> how often somebody was told to come back
}

// purchase is one payment.
type purchase struct {
	name, path, header string
	answer             exchange
	doubts             int // answers that it may have been settled
}

func emptyBatch(tb testing.TB, l *lab, f *fleet) *batch {
	tb.Helper()
	return &batch{run: newRun(tb, l, f.members[0], newClient()), f: f, told: map[string]int{}}
}

// newBatch signs one offer many times, each for a name of a mode that nobody else
// asks about.
func newBatch(tb testing.TB, l *lab, f *fleet, n int, mode string) *batch {
	tb.Helper()
	b := emptyBatch(tb, l, f)
	required := b.d.get(tb, b.client, lookup("example.com", "A"), "").offer(tb)
	for i := range n {
		p := purchase{name: fmt.Sprintf("%s-%d.%s%s", b.id, i, mode, strings.TrimSuffix(labDomain, "."))}
		p.path = lookup(p.name, "A")
		var err error
		if p.header, err = b.wallet.Pay(required, time.Now()); err != nil {
			tb.Fatal(err)
		}
		l.secret(p.header)
		b.payments = append(b.payments, p)
	}
	return b
}

// persist sends a payment until it is answered for good, to another process each
// time. It heeds Retry-After. each is called with every answer on the way.
func (b *batch) persist(ctx context.Context, p *purchase, each func(exchange)) error {
	return b.insist(ctx, p, func() (exchange, error) {
		d := b.f.members[int(b.f.next.Add(1))%len(b.f.members)]
		return d.send(ctx, b.client, http.MethodGet, p.path, paidBy(p.header))
	}, func(e exchange) bool { each(e); return false })
}

// insist sends a payment until its answer is for good, or enough.
func (b *batch) insist(
	ctx context.Context, p *purchase, send func() (exchange, error), enough func(exchange) bool,
) (err error) {
	for {
		if p.answer, err = send(); err != nil || p.answer.header.Get("Retry-After") == "" || enough(p.answer) {
			return err
		}
		b.note(p)
		if b.d.skip != nil { // its clock may stand still
			b.d.skip(p.answer.retryAfter())
		}
		if err = rest(ctx, p.answer); err != nil {
			return err
		}
	}
}

// note remembers that a payer was told to come back.
func (b *batch) note(p *purchase) {
	code := codeOf(p.answer)
	if code == string(fault.SettlementUncertain) {
		p.doubts++
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told[code]++
}

func (b *batch) waits() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("told to come back: %v", b.told)
}

// doubts is how often somebody was told that his settlement is uncertain.
func (b *batch) doubts() (n int) {
	for _, p := range b.payments {
		n += p.doubts
	}
	return n
}

// rush sends all payments at one moment, over all processes of the fleet. It
// returns how long it took until all were answered for good, or enough.
func (b *batch) rush(t *testing.T, enough func(exchange) bool, done func()) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	begun := time.Now()
	if err := b.f.rush(t, len(b.payments), func(i int, v visitor) error {
		defer done()
		p := &b.payments[i]
		return b.insist(ctx, p, func() (exchange, error) { return v.visit(ctx, p.path, p.header) }, enough)
	}); err != nil {
		t.Fatalf("a payment was not answered: %v", err)
	}
	return time.Since(begun)
}

// comeAgain has payers send their payments once more, all at the same time. Who has
// had an answer gets the same, from the ledger or from another lookup.
func (b *batch) comeAgain(t *testing.T, who []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := crowd(len(who), loadAtOnce, func(n int) error {
		p := &b.payments[who[n]]
		before := p.answer
		err := b.persist(ctx, p, func(exchange) {})
		same := p.answer.status == http.StatusOK && string(p.answer.body) == string(before.body)
		if err == nil && before.status == http.StatusOK && !same {
			t.Errorf("%s was answered %s, and then %s", p.name, before, p.answer)
		}
		return err
	}); err != nil {
		t.Fatalf("a payment was not answered again: %v", err)
	}
}

// audit holds every answer, the facilitator's books and the resolver's to each
// other. A payer who was told that his settlement is uncertain, as happens when it
// takes longer than it may, has had it asked for again.
func (b *batch) audit(t testing.TB) {
	t.Helper()
	hashes := map[string]string{} // ledger key -> transaction
	for _, m := range b.lab.facilitator.Moved(b.payer) {
		is(t, "value", m.Value, catalog.DNS().Amount)
		hashes[m.Key] = m.Transaction
	}
	is(t, "transfers", len(hashes), len(b.payments))
	doubts := b.doubts()
	if n := b.lab.settles(b.payer); n < len(b.payments) || n > len(b.payments)+doubts {
		t.Errorf("%d calls to /settle for %d payments, %d times in doubt", n, len(b.payments), doubts)
	}
	if _, most := b.lab.facilitator.Settles(); doubts == 0 {
		is(t, "calls to /settle for one payment", most, 1)
	}
	s := subject{op: catalog.DNS(), origin: b.d.origin, terms: b.lab.terms, payer: b.wallet.Address().Checksum()}
	for _, p := range b.payments {
		s.hash, b.name = hashes[keyOf(t, b.lab, p.header)], p.name
		w := result(b.fill(healthy().body))
		if p.answer.header.Get(x402.HeaderReplayed) != "" {
			w, s.before = w.replayed(), p.answer
		}
		w.blind = p.doubts > 0 && transactionOf(p.answer) == ""
		check(t, p.answer, w, s)
		b.checkLookups(t, p.name, p.header)
	}
}

// unused are the payments that are not used up in the ledger of the fleet, if it
// can be looked at.
func (b *batch) unused(t testing.TB) (which []int) {
	t.Helper()
	for i, p := range b.payments {
		if b.f.store == nil {
			return nil
		}
		record, err := b.f.store.Fetch(t.Context(), keyOf(t, b.lab, p.header))
		if err != nil || record == nil {
			t.Fatalf("record of %s: %v", p.name, err)
		}
		if record.State != ledger.Redeemed {
			which = append(which, i)
		}
	}
	return which
}

// transactionOf is what an answer's PAYMENT-RESPONSE says.
func transactionOf(e exchange) string {
	var receipt x402.SettleResponse
	_ = decodeHeader(e.header.Get(x402.HeaderResponse), &receipt) // check judges it
	return receipt.Transaction
}

// Parts of a request's line in the log, as text and as JSON.
var (
	nonceOf = regexp.MustCompile(`[ "]nonce"?[=:]"?(0x[0-9a-f]{64})`)
	failure = regexp.MustCompile(`[ "]code"?[=:]"?(?:dns_timeout|settlement_uncertain)\b|[ "]unrecorded"?[=:]true`)
)

// excuses counts, by nonce, the requests that leave a payment to be looked up
// once more: the log says of them that nobody answered the question in time, or
// that the store did not take what they came to.
func excuses(log string) map[string]int {
	n := map[string]int{}
	for line := range strings.Lines(log) {
		if m := nonceOf.FindStringSubmatch(line); m != nil && failure.MatchString(line) {
			n[m[1]]++
		}
	}
	return n
}

// checkLookups holds the lookups of a name to the service's own log: one, and one
// more for each request with one of the payments that leaves it to be looked up
// again. The line about a request may come after its answer.
func (b *batch) checkLookups(tb testing.TB, name string, headers ...string) {
	tb.Helper()
	asked := b.lab.dns.lookups(name)
	if asked < 1 {
		tb.Errorf("%s was never looked up", name)
	}
	if asked <= 1 {
		return
	}
	poll(tb, "the log to say why "+name+" was looked up again", func() bool {
		excused, most := excuses(b.f.log()), 1
		for _, header := range slices.Compact(headers) {
			key := keyOf(tb, b.lab, header)
			most += excused[key[strings.LastIndex(key, "|")+1:]]
		}
		return asked <= most
	})
}

// TestExcuses: a lookup too many must be seen.
func TestExcuses(t *testing.T) {
	t.Parallel()
	nonce := "0x" + strings.Repeat("5e", 32)
	for line, want := range map[string]int{
		"12:00:00.000 request request_id=a status=200 nonce=" + nonce + " lookup_ms=3":                     0,
		"12:00:00.000 WARN request request_id=a status=504 code=dns_timeout error=x nonce=" + nonce:        1,
		"12:00:00.000 request request_id=a status=200 nonce=" + nonce + " unrecorded=true":                 1,
		`{"msg":"request","status":504,"code":"dns_timeout","nonce":"` + nonce + `"}`:                      1,
		`{"msg":"request","status":200,"nonce":"` + nonce + `","unrecorded":true}`:                         1,
		`{"msg":"request","status":409,"code":"payment_in_progress","nonce":"` + nonce + `","claim_ms":1}`: 0,
		`{"msg":"request","status":504,"code":"dns_timeout","nonce":"0x` + strings.Repeat("00", 32) + `"}`: 0,
	} {
		if got := excuses(line + "\n")[nonce]; got != want {
			t.Errorf("%d excuses, want %d: %s", got, want, line)
		}
	}
}
