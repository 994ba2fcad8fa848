package storefront

import "sync"

// maxPlaces is how many values a Places keeps. When a Places is full, a new place replaces an
// old one. Otherwise a stranger could fill it with requests for invented hosts, and the real
// host would find no room.
const maxPlaces = 64

// Places stores one value for each place at which something is sold, such as an origin or a
// URL. The zero value of Places is empty.
type Places[T any] struct {
	mu     sync.Mutex
	values map[string]*T // the values, by place
}

// Of returns the value for a place. It calls update with the stored value, or with nil if
// there is none, and stores the value that update returns. If the stored value is still valid,
// update returns its argument. If update fails, Of returns the error and stores nothing.
func (p *Places[T]) Of(place string, update func(had *T) (*T, error)) (*T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.values[place]
	v, err := update(had)
	if err != nil || v == had {
		return v, err
	}
	if p.values == nil {
		p.values = map[string]*T{}
	}
	if had == nil {
		p.makeRoom()
	}
	p.values[place] = v
	return v, nil
}

// makeRoom deletes places until there is room for one more.
func (p *Places[T]) makeRoom() {
	for place := range p.values {
		if len(p.values) < maxPlaces {
			return
		}
		delete(p.values, place)
	}
}
