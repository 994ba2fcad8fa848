package storefront

import "sync"

// mostPlaces bounds the memory of Places. Beyond it a new place replaces another: a
// stranger can send requests for any host, and must not keep the real one out.
const mostPlaces = 64

// Places keeps what is made once for each place. The zero value is empty.
type Places[T any] struct {
	mu sync.Mutex
	at map[string]*T
}

// Of returns what update makes for a place, and keeps it. update is given what was kept, which
// is nil at first, and returns that if it still holds. An error is returned, and keeps nothing.
func (p *Places[T]) Of(at string, update func(had *T) (*T, error)) (*T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.at[at]
	v, err := update(had)
	if err != nil || v == had {
		return v, err
	}
	if p.at == nil {
		p.at = map[string]*T{}
	}
	for other := range p.at {
		if had != nil || len(p.at) < mostPlaces {
			break
		}
		delete(p.at, other)
	}
	p.at[at] = v
	return v, nil
}
