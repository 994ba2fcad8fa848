package judge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// stage is the state of one row while it is played: the seller and its payers.
type stage struct {
	court *court
	row   row
	over  chan struct{} // closed when the row is over
	run   context.Context

	mu        sync.Mutex
	instance  Instance
	up        chan struct{} // closed when the seller takes requests
	price     string
	purchases map[string]*purchase // by the payer's account
	failed    error                // why the last start of the seller failed; nil if it succeeded
	upstream  int                  // how many requests the seller has sent to the upstream
	calm      bool                 // whether the upstream has stopped failing

	// In some rows an event, such as a kill, happens to all payers at once; see meet.
	arrived map[*purchase]bool // the purchases whose payers have called meet
	ended   map[*purchase]bool // the purchases whose payers have finished
	once    sync.Once
	met     chan struct{} // closed when the event has happened
	event   func()
}

// play plays a row and returns its result.
func (j *court) play(ctx context.Context, r row) (RowResult, error) {
	result := RowResult{Row: r.name, What: r.what}
	ways := j.ways(r)
	if why := r.unplayable(j, ways); why != "" {
		result.NotPlayed = why
		return result, nil
	}
	s := &stage{
		court: j, row: r, run: ctx, over: make(chan struct{}), price: j.config.Price,
		purchases: map[string]*purchase{}, arrived: map[*purchase]bool{}, ended: map[*purchase]bool{}, met: make(chan struct{}),
	}
	j.bank.enter(s)
	defer close(s.over)
	s.start()
	defer s.stop()
	list, err := s.engage(ways)
	defer func() {
		for _, p := range list {
			p.close()
		}
	}()
	if err := errors.Join(err, s.failure()); err != nil {
		return result, err
	}
	var all sync.WaitGroup
	for _, p := range list {
		all.Go(func() { s.live(ctx, p) })
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return result, err
	}
	if err := s.failure(); err != nil { // the report must show this error for each payer
		for _, p := range list {
			p.note("the seller does not start again: %s", printable(err.Error()))
		}
	}
	if r.needsUpstream && s.upstream == 0 {
		result.NotPlayed = "the seller depends on nothing that could fail: it did not ask {upstream}"
		return result, nil
	}
	for _, p := range list {
		result.Cases = append(result.Cases, p.judge())
	}
	return result, nil
}

// engage makes one purchase, with its payer, for each way.
func (s *stage) engage(ways []Way) ([]*purchase, error) {
	var list []*purchase
	for _, way := range ways {
		p, err := newPurchase(s, way)
		if err != nil {
			return list, err
		}
		list = append(list, p)
		s.mu.Lock()
		s.purchases[strings.ToLower(p.payer.Address().String())] = p
		s.mu.Unlock()
	}
	return list, nil
}

// live does everything that one payer does in the row.
func (s *stage) live(ctx context.Context, p *purchase) {
	patient, cancel := context.WithTimeout(ctx, s.court.config.Patience)
	defer cancel()
	defer s.leave(p)
	switch {
	case p.outsider != nil:
		p.send(patient)
	case s.row.play != nil:
		s.row.play(patient, p)
	default:
		p.errand().run(patient)
	}
}

// purchaseOf returns the purchase for which an account pays, or nil if there is none in this row.
func (s *stage) purchaseOf(account string) *purchase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.purchases[strings.ToLower(account)]
}

// start starts a process of the seller.
func (s *stage) start() {
	s.mu.Lock()
	price := s.price
	if s.up == nil {
		s.up = make(chan struct{})
	}
	s.mu.Unlock()
	instance, err := s.court.config.Seller.Start(s.run, s.court.settings(price))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instance, s.failed = instance, err
	close(s.up)
}

// stop kills the seller.
func (s *stage) stop() {
	s.mu.Lock()
	instance := s.instance
	s.mu.Unlock()
	if instance != nil {
		instance.Kill()
	}
}

// restart kills the seller and starts it again.
func (s *stage) restart() {
	s.mu.Lock()
	s.up = make(chan struct{})
	s.mu.Unlock()
	s.stop()
	s.start()
}

func (s *stage) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// untilUp waits until the seller takes requests, and reports whether it does.
func (s *stage) untilUp(ctx context.Context) bool {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-up:
		return s.failure() == nil
	case <-ctx.Done():
		return false
	}
}

// untilOver waits until the row is over or ctx ends.
func (s *stage) untilOver(ctx context.Context) {
	select {
	case <-s.over:
	case <-ctx.Done():
	}
}

// origin returns the URL where the seller listens.
func (s *stage) origin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instance == nil {
		return ""
	}
	return s.instance.Origin()
}

// asksUpstream counts a request to the upstream, and reports whether that request must fail.
func (s *stage) asksUpstream() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upstream++
	return s.row.needsUpstream && !s.calm
}

// meet waits until all payers that are still active have called it, and then runs the event
// once. If the seller serves one payer after another, the payers cannot all wait in meet at
// the same time. Then the event happens when a payer has waited for Config.Hold.
func (s *stage) meet(p *purchase, event func()) {
	s.mu.Lock()
	s.arrived[p] = true
	s.event = event
	all := s.all()
	s.mu.Unlock()
	if all {
		s.happen()
	}
	late := time.NewTimer(s.court.config.Hold)
	defer late.Stop()
	select {
	case <-s.met:
	case <-late.C:
		s.happen()
	}
}

// all reports whether all payers that are still active have called meet. s.mu must be held.
func (s *stage) all() bool {
	if len(s.arrived) == 0 {
		return false
	}
	for _, p := range s.purchases {
		if !s.arrived[p] && !s.ended[p] {
			return false
		}
	}
	return true
}

// leave records that a payer has finished. The other payers then no longer wait for this payer
// in meet.
func (s *stage) leave(p *purchase) {
	s.mu.Lock()
	s.ended[p] = true
	all := s.all()
	s.mu.Unlock()
	if all {
		s.happen()
	}
}

func (s *stage) happen() {
	s.once.Do(func() {
		s.mu.Lock()
		event := s.event
		s.mu.Unlock()
		event()
		close(s.met)
	})
}
