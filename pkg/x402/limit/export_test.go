package limit

import "time"

// StoreTimeout bounds a report.
const StoreTimeout = storeTimeout

// Patient has a Rate wait for its store as long as a busy machine may need.
func (r *Rate) Patient() *Rate {
	r.timeout = time.Minute
	return r
}

// Forgiving has a Rate carry no debts.
func (r *Rate) Forgiving() *Rate {
	r.debts = 0
	return r
}

// Clients returns how many clients are tracked.
func (r *Rate) Clients() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.clients)
}
