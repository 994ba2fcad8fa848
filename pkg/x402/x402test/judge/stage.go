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
	court   *court
	row     row
	rowOver chan struct{} // closed when the row is over
	runCtx  context.Context

	mu            sync.Mutex
	instance      Instance
	sellerUp      chan struct{} // closed when the seller takes requests
	price         string
	purchases     map[string]*purchase // by the payer's account
	startErr      error                // why the last start of the seller failed; nil if it succeeded
	upstreamCalls int                  // how many requests the seller has sent to the upstream
	upstreamWorks bool                 // whether the upstream has stopped failing

	// In some rows an event, such as a kill, happens to all payers at once; see meet.
	arrived   map[*purchase]bool // the purchases whose payers have called meet
	ended     map[*purchase]bool // the purchases whose payers have finished
	eventOnce sync.Once
	eventDone chan struct{} // closed when the event has happened
	event     func()
}

// play plays a row and returns its result.
func (j *court) play(ctx context.Context, r row) (RowResult, error) {
	result := RowResult{Row: r.name, What: r.summary}
	ways := j.ways(r)
	if why := r.unplayable(j, ways); why != "" {
		result.NotPlayed = why
		return result, nil
	}
	s := &stage{
		court: j, row: r, runCtx: ctx, rowOver: make(chan struct{}), price: j.config.Price,
		purchases: map[string]*purchase{}, arrived: map[*purchase]bool{}, ended: map[*purchase]bool{}, eventDone: make(chan struct{}),
	}
	j.bank.setStage(s)
	defer close(s.rowOver)
	s.start()
	defer s.stop()
	list, err := s.engage(ways)
	defer func() {
		for _, p := range list {
			p.close()
		}
	}()
	if err := errors.Join(err, s.startError()); err != nil {
		return result, err
	}
	var all sync.WaitGroup
	for _, p := range list {
		all.Go(func() { s.playPayer(ctx, p) })
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return result, err
	}
	if err := s.startError(); err != nil { // the report must show this error for each payer
		for _, p := range list {
			p.note("the seller does not start again: %s", printable(err.Error()))
		}
	}
	if r.needsUpstream && s.upstreamCalls == 0 {
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

// playPayer does everything that one payer does in the row.
func (s *stage) playPayer(ctx context.Context, p *purchase) {
	patient, cancel := context.WithTimeout(ctx, s.court.config.Patience)
	defer cancel()
	defer s.leave(p)
	switch {
	case p.outsider != nil:
		p.runOutsider(patient)
	case s.row.play != nil:
		s.row.play(patient, p)
	default:
		p.newErrand().run(patient)
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
	if s.sellerUp == nil {
		s.sellerUp = make(chan struct{})
	}
	s.mu.Unlock()
	instance, err := s.court.config.Seller.Start(s.runCtx, s.court.settings(price))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instance, s.startErr = instance, err
	close(s.sellerUp)
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
	s.sellerUp = make(chan struct{})
	s.mu.Unlock()
	s.stop()
	s.start()
}

func (s *stage) startError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startErr
}

// waitUntilUp waits until the seller takes requests, and reports whether it does.
func (s *stage) waitUntilUp(ctx context.Context) bool {
	s.mu.Lock()
	up := s.sellerUp
	s.mu.Unlock()
	select {
	case <-up:
		return s.startError() == nil
	case <-ctx.Done():
		return false
	}
}

// waitUntilOver waits until the row is over or ctx ends.
func (s *stage) waitUntilOver(ctx context.Context) {
	select {
	case <-s.rowOver:
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

// upstreamMustFail counts a request to the upstream, and reports whether that request must
// fail.
func (s *stage) upstreamMustFail() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upstreamCalls++
	return s.row.needsUpstream && !s.upstreamWorks
}

// meet waits until all payers that are still active have called it, and then runs the event
// once. If the seller serves one payer after another, the payers cannot all wait in meet at
// the same time. Then the event happens when a payer has waited for Config.Hold.
func (s *stage) meet(p *purchase, event func()) {
	s.mu.Lock()
	s.arrived[p] = true
	s.event = event
	all := s.allArrived()
	s.mu.Unlock()
	if all {
		s.runEvent()
	}
	late := time.NewTimer(s.court.config.Hold)
	defer late.Stop()
	select {
	case <-s.eventDone:
	case <-late.C:
		s.runEvent()
	}
}

// allArrived reports whether all payers that are still active have called meet. s.mu must be
// held.
func (s *stage) allArrived() bool {
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
	all := s.allArrived()
	s.mu.Unlock()
	if all {
		s.runEvent()
	}
}

func (s *stage) runEvent() {
	s.eventOnce.Do(func() {
		s.mu.Lock()
		event := s.event
		s.mu.Unlock()
		event()
		close(s.eventDone)
	})
}
