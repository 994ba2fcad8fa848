package judge

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// Handler returns a seller that runs in this process. The function build returns the seller's
// handler; its argument has the URL of the facilitator that settles the handler's payments.
// The function is called again after each kill. Each handler must keep its records where the
// next handler finds them. A handler cannot really be killed. Instead, its connections are
// closed, and its later requests to the facilitator get no answer.
func Handler(build func(Settings) http.Handler) Seller { return inProcess{build} }

type inProcess struct{ build func(Settings) http.Handler }

// Start implements Seller.
func (s inProcess) Start(ctx context.Context, with Settings) (Instance, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	facilitator, end := with.NewLife()
	with.Facilitator = facilitator
	handler := s.build(with)
	if handler == nil {
		end()
		listener.Close()
		return nil, errors.New("there is no handler")
	}
	life := &handlerRun{origin: "http://" + listener.Addr().String(), end: end}
	life.server = newServer(handler)
	go func() { _ = life.server.Serve(listener) }() // Serve returns after Close
	return life, nil
}

// handlerRun is one run of a handler, from its start until it is killed.
type handlerRun struct {
	origin string
	server *http.Server
	end    func()
}

// Origin implements Instance.
func (l *handlerRun) Origin() string { return l.origin }

// Kill implements Instance.
func (l *handlerRun) Kill() {
	l.end()
	l.server.Close()
}
