package storefront

import "sync"

// mostPlaces bounds the memory of Places. Beyond it a new place replaces another: a
// stranger can send requests for any host, and must not keep the real one out.
const mostPlaces = 64

// Places keeps what is made once for each place. The zero value is empty.
type Places[T any] struct {
	mu   sync.Mutex
	kept map[string]*T // by place
}

// Of returns what update makes for a place, and keeps it. update is given what was kept, which
// is nil at first, and returns that if it still holds. An error is returned, and keeps nothing.
func (p *Places[T]) Of(place string, update func(had *T) (*T, error)) (*T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.kept[place]
	v, err := update(had)
	if err != nil || v == had {
		return v, err
	}
	if p.kept == nil {
		p.kept = map[string]*T{}
	}
	if had == nil {
		p.makeRoom()
	}
	p.kept[place] = v
	return v, nil
}

// makeRoom drops places until there is room for one more.
func (p *Places[T]) makeRoom() {
	for place := range p.kept {
		if len(p.kept) < mostPlaces {
			return
		}
		delete(p.kept, place)
	}
}
