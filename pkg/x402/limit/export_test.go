package limit

// Clients returns how many clients are tracked.
func (r *Rate) Clients() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.clients)
}
