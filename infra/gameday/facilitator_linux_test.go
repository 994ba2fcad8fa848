package gameday

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// facilitatorFault is what a facilitator does with a call before or after its
// honest work. The zero value does nothing.
type facilitatorFault struct {
	// late is how much later than it could a settlement is answered; the money
	// moves at once.
	late time.Duration
	// mute: the money moves, and there is never an answer.
	mute bool
	// hangs: no money moves, and there is never an answer.
	hangs bool
	// after is called when the money has moved, before the answer. The
	// connection closes without one if it returns false.
	after func(payer string) bool
}

// facilitator is the play-money facilitator behind a door.
type facilitator struct {
	*door
	faulty[facilitatorFault]
	books *testbed.Facilitator
}

func newFacilitator(t *testing.T, addr string) *facilitator {
	t.Helper()
	f := &facilitator{books: testbed.NewFacilitator(t, x402test.FacilitatorConfig{})}
	f.door = serve(t, addr, f, nil)
	return f
}

func (f *facilitator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := f.fault()
	if r.URL.Path != "/settle" {
		f.books.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	if fault.hangs {
		<-r.Context().Done()
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	f.books.ServeHTTP(answer, r)
	if fault.after != nil && !fault.after(testbed.CallPayer(body)) {
		panic(http.ErrAbortHandler)
	}
	var due <-chan time.Time // never
	if !fault.mute {
		due = time.After(fault.late)
	}
	select {
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-due:
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the function may be gone
}
