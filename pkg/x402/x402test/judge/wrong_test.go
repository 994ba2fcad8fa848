package judge_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

const payTo = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"

// fault is the mistake of a wrong seller. In addition, no wrong seller keeps its answers.
type fault string

const (
	faultForgets  fault = "forgets"  // it has no other mistake: it only forgets its answers
	faultUpfront  fault = "upfront"  // it settles before it has an answer
	faultTrusts   fault = "trusts"   // it answers even if the facilitator refuses
	faultBelieves fault = "believes" // it takes the reason "nonce used" as proof of a payment
	faultReserves fault = "reserves" // it accepts no payment twice, even after a failure
	faultHasty    fault = "hasty"    // it does not wait long enough for a slow facilitator
	faultSilent   fault = "silent"   // it fails once the money has moved
	faultLies     fault = "lies"     // it always says that nothing was charged
)

// wrongSeller sells as a simple seller does: it verifies the payment, answers, and settles the
// payment. It also makes the mistake that the field fault names.
type wrongSeller struct {
	judge.Settings
	fault    fault
	payments *sync.Map // the payments that this process or an earlier one has seen
}

func (s wrongSeller) terms() x402.Requirements {
	terms := x402.USDC()
	terms.PayTo = payTo
	amount := "10000"
	if s.Price == higherPrice {
		amount = "20000"
	}
	return terms.Requirements(amount)
}

// ServeHTTP implements http.Handler.
func (s wrongSeller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := r.Header.Get(x402.HeaderSignature)
	payload, err := base64.StdEncoding.DecodeString(header)
	if header == "" || err != nil {
		s.demand(w, "Payment required")
		return
	}
	if _, again := s.payments.LoadOrStore(header, true); again && s.fault == faultReserves {
		http.Error(w, "this payment was used", http.StatusConflict)
		return
	}
	if s.fault != faultUpfront {
		if reason := s.ask("/verify", payload); reason != "" && !s.answersDespite(reason) {
			s.demand(w, reason)
			return
		}
	}
	answer, err := http.Get(s.Upstream)
	if err != nil {
		http.Error(w, "no answer", http.StatusInternalServerError)
		return
	}
	defer answer.Body.Close()
	if s.fault != faultUpfront && answer.StatusCode != http.StatusOK {
		http.Error(w, "no answer", http.StatusInternalServerError)
		return
	}
	if reason := s.ask("/settle", payload); reason != "" && !s.answersDespite(reason) {
		s.demand(w, reason)
		return
	}
	if s.fault == faultSilent {
		http.Error(w, "no answer", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

func (s wrongSeller) demand(w http.ResponseWriter, reason string) {
	required := x402.PaymentRequired{
		X402Version: x402.Version, Error: reason, Resource: x402.Resource{URL: "http://shop.example/"}, Accepts: []x402.Requirements{s.terms()},
	}
	header, err := x402.EncodeHeader(required)
	if err != nil {
		panic(err)
	}
	w.Header().Set(x402.HeaderRequired, header)
	w.WriteHeader(http.StatusPaymentRequired)
	if s.fault == faultLies {
		_, _ = io.WriteString(w, `{"charged":false}`)
	}
}

// ask sends a payment to the facilitator. It returns an empty string if the facilitator
// accepts the payment, and a reason otherwise.
func (s wrongSeller) ask(path string, payload json.RawMessage) (reason string) {
	body, err := json.Marshal(map[string]any{"x402Version": x402.Version, "paymentPayload": payload, "paymentRequirements": s.terms()})
	if err != nil {
		return err.Error()
	}
	patience := time.Minute
	if s.fault == faultHasty {
		patience = slowDelay / 2
	}
	client := http.Client{Timeout: patience}
	res, err := client.Post(s.Facilitator+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return "the facilitator does not answer"
	}
	defer res.Body.Close()
	var said struct {
		IsValid, Success           bool
		InvalidReason, ErrorReason string
	}
	if json.NewDecoder(res.Body).Decode(&said) == nil && (said.IsValid || said.Success) {
		return ""
	}
	return said.InvalidReason + said.ErrorReason + " "
}

// answersDespite reports whether the seller answers although the facilitator refuses.
func (s wrongSeller) answersDespite(reason string) bool {
	return s.fault == faultTrusts || s.fault == faultBelieves && strings.Contains(reason, x402.ReasonNonceUsed)
}

const (
	slowDelay   = 3 * time.Second // the delay of a slow facilitator; a hasty seller waits half as long, which is enough for any other facilitator
	higherPrice = "0.02"
)

// basicPromises returns the promises that a seller can make without declaring an extension.
func basicPromises() []judge.Promise {
	return []judge.Promise{judge.PromiseSame, judge.PromiseNew, judge.PromiseKey}
}

// playRows plays rows against a wrong seller that makes the given promises.
func playRows(t *testing.T, f fault, promises []judge.Promise, rows ...string) *judge.Report {
	t.Helper()
	seen := new(sync.Map)
	report, err := judge.Run(t.Context(), judge.Config{
		Seller:     judge.Handler(func(s judge.Settings) http.Handler { return wrongSeller{s, f, seen} }),
		World:      world(t),
		Goods:      judge.Goods{Path: "/weather?city=Oslo", OtherPath: "/weather?city=Rome"},
		Price:      "0.01",
		OtherPrice: higherPrice,
		Promises:   promises,
		Rows:       rows,
		Hold:       2 * time.Second,
		Slow:       slowDelay,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// brokenRows returns the rows of a report in which a verdict is Broken.
func brokenRows(r *judge.Report) map[string]bool {
	rows := map[string]bool{}
	for _, row := range r.Rows {
		for _, c := range row.Cases {
			if c.Verdict == judge.Broken {
				rows[row.Row] = true
			}
		}
	}
	return rows
}

// TestWrongSellers lets Run test each wrong seller. The seller must fail exactly the rows that
// are listed for its mistake. In the end, each row must have been failed by at least one wrong
// seller.
func TestWrongSellers(t *testing.T) {
	t.Parallel()
	// forgetful has the rows that a seller fails if its only mistake is to keep no answers.
	// After a lost reply, such a seller always charges again.
	forgetful := []string{
		"reply-lost", "reply-cut", "reply-late", "settle-silent", "settle-refused", "settle-later", "settle-500", "settle-pending", "settle-used",
		"kill-while", "kill-after", "evening", "at-once", "stranger", "stranger-in-doubt", "price-changes",
	}
	forgetfulExcept := func(fewer []string, more ...string) []string {
		rows := slices.DeleteFunc(slices.Clone(forgetful), func(row string) bool { return slices.Contains(fewer, row) })
		return append(rows, more...)
	}
	wrong := map[fault][]string{
		faultForgets:  forgetful,
		faultUpfront:  forgetfulExcept(nil, "handler-fails"),
		faultTrusts:   forgetfulExcept([]string{"settle-silent", "settle-refused", "settle-500", "settle-pending", "settle-used"}, "refused", "down", "another-question"),
		faultBelieves: forgetfulExcept([]string{"settle-used"}, "another-question"),
		faultReserves: forgetfulExcept(nil, "kill-before", "handler-fails"),
		faultHasty:    forgetfulExcept(nil, "slow"),
		faultSilent:   forgetfulExcept(nil, "clean", "down", "slow", "kill-before", "another-question", "handler-fails"),
		faultLies:     forgetful,
	}
	failed := map[string]bool{}
	var rows []string
	if testing.Short() {
		rows = []string{"clean", "reply-lost", "settle-refused", "refused", "kill-while", "stranger"}
	}
	var mu sync.Mutex
	t.Run("all", func(t *testing.T) {
		for f, want := range wrong {
			t.Run(string(f), func(t *testing.T) {
				t.Parallel()
				got := brokenRows(playRows(t, f, basicPromises(), rows...))
				mu.Lock()
				maps.Copy(failed, got)
				mu.Unlock()
				for _, row := range judge.RowNames() {
					played := rows == nil || slices.Contains(rows, row)
					if wants := played && slices.Contains(want, row); got[row] != wants {
						t.Errorf("%s: broken is %t, want %t", row, got[row], wants)
					}
				}
			})
		}
	})
	for _, row := range judge.RowNames() {
		if (rows == nil || slices.Contains(rows, row)) && !failed[row] {
			t.Errorf("no wrong seller fails the row %s", row)
		}
	}
}

// TestNotPromised checks a seller that makes no promises. It must not be blamed for a failure
// that only a promise forbids. It must still be blamed for its mistakes, and for false
// statements.
func TestNotPromised(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault fault
		row   string
		want  judge.Verdict
	}{
		{faultForgets, "stranger", judge.NotPromised},
		{faultBelieves, "stranger", judge.Broken},
		{faultForgets, "settle-refused", judge.NotPromised},
		{faultLies, "settle-refused", judge.Broken},
		{faultSilent, "clean", judge.Broken},
	} {
		for _, got := range playRows(t, c.fault, nil, c.row).Rows[0].Cases {
			if got.Verdict != c.want {
				t.Errorf("%s, %s: %+v", c.fault, c.row, got)
			}
		}
	}
}

// TestSameSeed checks that two runs with the same seed give the same report.
func TestSameSeed(t *testing.T) {
	t.Parallel()
	rows := judge.RowNames()
	if testing.Short() {
		rows = []string{"reply-late", "settle-later", "kill-while", "at-once"}
	}
	var runs [2]bytes.Buffer
	for i := range runs {
		if err := playRows(t, faultForgets, basicPromises(), rows...).WriteJSON(&runs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if runs[0].String() != runs[1].String() {
		t.Errorf("%s\n%s", &runs[0], &runs[1])
	}
}

// TestDoesNotStartAgain plays a kill after which the seller does not start again. The last
// step of each payer's case must say that. Each payer was charged before the kill and gets no
// answer; this seller promises nothing beyond the protocol, so the verdict is NotPromised.
func TestDoesNotStartAgain(t *testing.T) {
	t.Parallel()
	starts := 0
	seen := new(sync.Map)
	report, err := judge.Run(t.Context(), judge.Config{
		World: world(t),
		Goods: judge.Goods{Path: "/weather?city=Oslo"},
		Rows:  []string{"kill-after"},
		Seller: judge.Handler(func(s judge.Settings) http.Handler {
			if starts++; starts > 2 { // the first process is only asked for the price, and the second is killed
				return nil
			}
			return wrongSeller{s, faultForgets, seen}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Rows[0].Cases {
		last := c.Steps[len(c.Steps)-1]
		if c.Transfers != 1 || c.Answers != 0 || c.Verdict != judge.NotPromised || last != "the seller does not start again: there is no handler" {
			t.Errorf("%+v", c)
		}
	}
}

// world returns the surroundings of a wrong seller.
func world(t *testing.T) judge.World {
	t.Helper()
	w, err := x402test.World(x402.Base)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
