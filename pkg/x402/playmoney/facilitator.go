// Package playmoney is a facilitator that settles play money, for tests and for the
// local runner. No function imports it.
package playmoney

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Behaviour is what the facilitator does with one settle.
type Behaviour int

// The ways a settle can go. Some do it and fail, some fail without doing it.
const (
	Honest      Behaviour = iota
	Refuse                // 200 success:false insufficient balance, nothing moves
	RefuseAfter           // the money moves, insufficient balance all the same
	FailBefore            // 500 without a body, nothing moves
	FailAfter             // the money moves, 500 without a body
	DropBefore            // the connection closes, nothing moves
	DropAfter             // the money moves, the connection closes
	Pending               // the money moves, settlement_pending; a resend succeeds
	Unconfirmed           // the money moves, settlement_pending now and on every resend
	Unauthorized
	TooMany
	Hang // nothing moves, no answer until the client gives up
)

// Transfer is play money that moved.
type Transfer struct {
	Key         string    `json:"key"` // network|asset|payer|nonce
	Transaction string    `json:"transaction"`
	Payee       string    `json:"payee"`
	Value       string    `json:"value"`
	At          time.Time `json:"at"`
}

// Facilitator settles play money: everybody has enough, and every
// authorization executes at most once, as on the chain. It is an http.Handler
// with /settle, /verify, /supported, and /transfers for a look at the books.
type Facilitator struct {
	config   FacilitatorConfig
	mu       sync.Mutex
	journal  *journal // nil for none
	moved    map[string]Transfer
	settles  map[string]int // calls to /settle by key
	calls    int
	verifies int
}

// FacilitatorConfig are the parts of a Facilitator. Terms and Now are needed.
type FacilitatorConfig struct {
	Terms x402.Terms
	Now   func() time.Time
	// Journal is a file that keeps the books across restarts; empty keeps
	// them in memory.
	Journal string
	// Behave decides how the nth settle (from 0) goes; nil is Honest.
	Behave func(n int, key string) Behaviour
	// Contract judges signatures that are not the payer's own key's; nil
	// refuses them.
	Contract func(from x402.Address, signature []byte) bool
}

// NewFacilitator opens the books.
func NewFacilitator(c FacilitatorConfig) (*Facilitator, error) {
	f := &Facilitator{config: c, moved: map[string]Transfer{}, settles: map[string]int{}}
	if c.Journal == "" {
		return f, nil
	}
	j, list, err := openJournal(c.Journal)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		f.moved[t.Key] = t
	}
	f.journal = j
	return f, nil
}

// Close closes the journal.
func (f *Facilitator) Close() error {
	if f.journal == nil {
		return nil
	}
	return f.journal.file.Close()
}

// Transfers returns everything that moved.
func (f *Facilitator) Transfers() []Transfer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.AppendSeq([]Transfer{}, maps.Values(f.moved)) // not nil, which JSON has no list for
}

// Settles is how often /settle was called in all, and the most often for one
// authorization.
func (f *Facilitator) Settles() (all, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.settles {
		all, most = all+n, max(most, n)
	}
	return all, most
}

// Verifies is how often /verify was called.
func (f *Facilitator) Verifies() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.verifies
}

func (f *Facilitator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /supported":
		reply(w, http.StatusOK, map[string]any{
			"kinds":      []map[string]any{{"x402Version": x402.Version, "scheme": x402.Scheme, "network": f.config.Terms.Network}},
			"extensions": []string{}, "signers": map[string]any{},
		})
	case "GET /transfers":
		reply(w, http.StatusOK, f.Transfers())
	case "POST /verify":
		f.verify(w, r)
	case "POST /settle":
		f.settle(w, r)
	default:
		reply(w, http.StatusNotFound, map[string]string{"error": "no such path"})
	}
}

func (f *Facilitator) verify(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.verifies++
	f.mu.Unlock()
	p, _, err := f.read(r)
	if err != nil {
		reply(w, http.StatusOK, map[string]any{"isValid": false, "invalidReason": err.Error()})
		return
	}
	reply(w, http.StatusOK, map[string]any{"isValid": true, "payer": p.From.Checksum()})
}

func (f *Facilitator) settle(w http.ResponseWriter, r *http.Request) {
	p, requirements, err := f.read(r)
	if p == nil {
		reply(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	key := f.key(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.calls
	f.calls++
	f.settles[key]++
	how := Honest
	if f.config.Behave != nil {
		how = f.config.Behave(n, key)
	}
	if err != nil {
		failed(w, requirements, p, err.Error(), "")
		return
	}
	f.perform(w, r, how, p, requirements)
}

// perform goes one of the ways. The lock is held: settlements are in order.
func (f *Facilitator) perform(w http.ResponseWriter, r *http.Request, how Behaviour, p *x402.Payment, q x402.Requirements) {
	key := f.key(p)
	switch how {
	case Refuse:
		failed(w, q, p, "invalid_exact_evm_insufficient_balance", "")
		return
	case FailBefore:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case DropBefore:
		panic(http.ErrAbortHandler)
	case Unauthorized:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case TooMany:
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case Hang:
		f.mu.Unlock()
		<-r.Context().Done()
		f.mu.Lock()
		return
	}
	earlier, used := f.moved[key]
	resend := used && f.settles[key] > 1 && (how == Pending || how == Unconfirmed)
	if used && !resend {
		failed(w, q, p, x402.ReasonNonceUsed, "")
		return
	}
	if !used {
		var err error
		if earlier, err = f.move(key, p); err != nil {
			failed(w, q, p, "unexpected_settle_error", "")
			return
		}
	}
	switch {
	case how == RefuseAfter:
		failed(w, q, p, "invalid_exact_evm_insufficient_balance", "")
	case how == FailAfter:
		w.WriteHeader(http.StatusInternalServerError)
	case how == DropAfter:
		panic(http.ErrAbortHandler)
	case how == Unconfirmed, how == Pending && !resend:
		failed(w, q, p, "settlement_pending", earlier.Transaction)
	default:
		reply(w, http.StatusOK, x402.SettleResponse{Success: true, Transaction: earlier.Transaction, Network: q.Network, Payer: p.From.Checksum()})
	}
}

// move executes a transfer and writes it down before anybody hears of it.
func (f *Facilitator) move(key string, p *x402.Payment) (Transfer, error) {
	sum := sha256.Sum256([]byte(key))
	t := Transfer{Key: key, Transaction: "0x" + hex.EncodeToString(sum[:]), Payee: p.To.String(), Value: p.Value.String(), At: f.config.Now().UTC()}
	if f.journal != nil {
		line, err := json.Marshal(t)
		if err != nil {
			return t, err
		}
		if err := f.journal.write(line); err != nil {
			return t, err
		}
	}
	f.moved[key] = t
	return t, nil
}

func (f *Facilitator) key(p *x402.Payment) string {
	return strings.ToLower(f.config.Terms.Network + "|" + f.config.Terms.Asset + "|" + p.From.String() + "|0x" + hex.EncodeToString(p.Nonce[:]))
}

// read decodes a request and judges it as the reference facilitators do. The
// payment is nil when there is nothing to judge.
func (f *Facilitator) read(r *http.Request) (*x402.Payment, x402.Requirements, error) {
	var body struct {
		PaymentPayload      x402.Payload      `json:"paymentPayload"`
		PaymentRequirements x402.Requirements `json:"paymentRequirements"`
	}
	q := &body.PaymentRequirements
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&body); err != nil {
		return nil, *q, err
	}
	header, err := x402.EncodeHeader(body.PaymentPayload)
	if err != nil {
		return nil, *q, err
	}
	p, err := x402.DecodePayment(header)
	if err != nil {
		return nil, *q, err
	}
	return p, *q, f.judge(p, *q)
}

func (f *Facilitator) judge(p *x402.Payment, q x402.Requirements) error {
	payTo, err := x402.ParseAddress(q.PayTo)
	if err != nil || p.To != payTo {
		return errors.New("invalid_exact_evm_recipient_mismatch")
	}
	if p.Value.String() != q.Amount {
		return errors.New("invalid_exact_evm_payload_authorization_value_mismatch")
	}
	if p.ValidBefore.IsInt64() && p.ValidBefore.Int64() < f.config.Now().Add(6*time.Second).Unix() {
		return errors.New("invalid_exact_evm_payload_authorization_valid_before")
	}
	domain, err := x402.Terms{Network: q.Network, Asset: q.Asset, Name: q.Extra.Name, Version: q.Extra.Version}.TokenDomain()
	if err != nil {
		return errors.New("invalid_exact_evm_missing_eip712_domain")
	}
	if p.Check(p.Digest(domain)) != nil && (f.config.Contract == nil || !f.config.Contract(p.From, p.Signature)) {
		return errors.New("invalid_exact_evm_signature")
	}
	return nil
}

func failed(w http.ResponseWriter, q x402.Requirements, p *x402.Payment, reason, transaction string) {
	reply(w, http.StatusOK, x402.SettleResponse{ErrorReason: reason, Transaction: transaction, Network: q.Network, Payer: p.From.Checksum()})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone; that is its business.
	_ = json.NewEncoder(w).Encode(v)
}
