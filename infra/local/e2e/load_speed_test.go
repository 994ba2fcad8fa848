package e2e

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The sizes of crowds: what a machine gets through within a part of the
// service's own deadlines, but never fewer than meet each other, and no more
// than say anything new.
const (
	smallCrowd, largeCrowd = 50, 1000
	// crowdTime is half of what one lookup may take, which all the others of a
	// crowd may keep waiting.
	crowdTime = 4 * time.Second
)

// crowdSize measures how many paid requests some services answer in a second on
// this machine at this moment, and returns how many may come at once.
func crowdSize(tb testing.TB, l *lab, members []*deployment) int {
	tb.Helper()
	const samples, atOnce = 24, 8
	b := newBasketAt(tb, l, members[0], samples, modeHealthy)
	client := newClient()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*patience)
	defer cancel()
	begun := time.Now()
	if err := crowd(samples, atOnce, func(i int) error {
		_, err := until(ctx, members[i%len(members)], client, b.payments[i].path, b.payments[i].header)
		return err
	}); err != nil {
		tb.Fatalf("measure the machine: %v", err)
	}
	rate := samples / time.Since(begun).Seconds()
	n := max(smallCrowd, min(largeCrowd, int(rate*crowdTime.Seconds())))
	tb.Logf("%.0f paid requests a second: a crowd of %d", rate, n)
	return n
}

// until sends a payment until it is answered for good.
func until(ctx context.Context, d *deployment, client *http.Client, path, signature string) (exchange, error) {
	for {
		e, err := d.send(ctx, client, http.MethodGet, path, paidBy(signature))
		if err != nil || e.header.Get("Retry-After") == "" {
			return e, err
		}
		if err := rest(ctx, e); err != nil {
			return e, err
		}
	}
}

// Parts of a request's line in the log, as text and as JSON.
var (
	nonceOf = regexp.MustCompile(`[ "]nonce"?[=:]"?(0x[0-9a-f]{64})`)
	failure = regexp.MustCompile(`[ "]code"?[=:]"?(?:dns_timeout|settlement_uncertain)\b|[ "]unrecorded"?[=:]true`)
)

// excuses counts, by nonce, the requests that leave a payment to be looked up
// once more: the log says of them that nobody answered the question in time, or
// that the store did not take what they came to.
func excuses(log string) map[string]int {
	n := map[string]int{}
	for line := range strings.Lines(log) {
		if m := nonceOf.FindStringSubmatch(line); m != nil && failure.MatchString(line) {
			n[m[1]]++
		}
	}
	return n
}

// checkLookups holds the lookups of a payment to the service's own log: one, and
// one more for each request that leaves it to be looked up again. The line about
// a request may come after its answer.
func checkLookups(tb testing.TB, l *lab, name, header string, logs func() string) {
	tb.Helper()
	asked := l.dns.lookups(name)
	if asked == 1 {
		return
	}
	key := keyOf(tb, l, header)
	nonce := key[strings.LastIndex(key, "|")+1:]
	if asked < 1 {
		tb.Errorf("%s was never looked up", name)
		return
	}
	poll(tb, "the log to say why "+name+" was looked up again", func() bool { return asked <= 1+excuses(logs())[nonce] })
}

// TestExcuses: a lookup too many must be seen.
func TestExcuses(t *testing.T) {
	t.Parallel()
	nonce := "0x" + strings.Repeat("5e", 32)
	for line, want := range map[string]int{
		"12:00:00.000 request request_id=a status=200 nonce=" + nonce + " lookup_ms=3":                     0,
		"12:00:00.000 WARN request request_id=a status=504 code=dns_timeout error=x nonce=" + nonce:        1,
		"12:00:00.000 request request_id=a status=200 nonce=" + nonce + " unrecorded=true":                 1,
		`{"msg":"request","status":504,"code":"dns_timeout","nonce":"` + nonce + `"}`:                      1,
		`{"msg":"request","status":200,"nonce":"` + nonce + `","unrecorded":true}`:                         1,
		`{"msg":"request","status":409,"code":"payment_in_progress","nonce":"` + nonce + `","claim_ms":1}`: 0,
		`{"msg":"request","status":504,"code":"dns_timeout","nonce":"0x` + strings.Repeat("00", 32) + `"}`: 0,
	} {
		if got := excuses(line + "\n")[nonce]; got != want {
			t.Errorf("%d excuses, want %d: %s", got, want, line)
		}
	}
}
