package limit

import "time"

// StoreTimeout is the longest time that one report to the store may take.
const StoreTimeout = storeTimeout

// Patient makes a Rate wait a minute for its store, so that no call times out on a busy
// machine.
func (r *Rate) Patient() *Rate {
	r.timeout = time.Minute
	return r
}

// Forgiving makes a Rate carry no debts into later windows.
func (r *Rate) Forgiving() *Rate {
	r.debtWindows = 0
	return r
}

// Clients returns how many clients a Rate keeps counts of.
func (r *Rate) Clients() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.clients)
}
