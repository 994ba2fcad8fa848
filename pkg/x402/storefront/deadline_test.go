package storefront

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestDeadline checks that a request is answered before its Lambda function times out, and
// that a lookup leaves time for the settlement. These functions have 29 s, and API Gateway
// waits for 30 s.
func TestDeadline(t *testing.T) {
	t.Parallel()
	if deadline >= 29*time.Second {
		t.Errorf("a function is ended before its deadline of %v", deadline)
	}
	for _, o := range catalog.All() {
		if o.Deadline <= 0 || o.Deadline > deadline/2 {
			t.Errorf("%s: a lookup of %v leaves no room for the settlement in %v", o.Slug, o.Deadline, deadline)
		}
	}
}
