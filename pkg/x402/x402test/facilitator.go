package x402test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Behaviour is how the facilitator answers one call of /settle.
type Behaviour int

// The ways a settle can go. Some do it and fail, some fail without doing it.
const (
	Honest       Behaviour = iota // the money moves, 200 success:true
	Refuse                        // 200 success:false insufficient balance, nothing moves
	RefuseAfter                   // the money moves, insufficient balance all the same
	FailBefore                    // 500 without a body, nothing moves
	FailAfter                     // the money moves, 500 without a body
	DropAfter                     // the money moves, the connection closes
	Unconfirmed                   // the money moves, settlement_pending now and on every resend
	Unauthorized                  // 401, nothing moves
	TooMany                       // 429, nothing moves
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
// with /settle, /verify, /supported, and /transfers, which lists what has moved.
type Facilitator struct {
	config   FacilitatorConfig
	mu       sync.Mutex
	journal  *os.File // nil for none
	moved    map[string]Transfer
	settles  map[string]int // calls to /settle by key
	calls    int
	verifies int
}

// FacilitatorConfig has the parts of a Facilitator. Terms and Now are required.
type FacilitatorConfig struct {
	Terms x402.Terms
	Now   func() time.Time
	// Journal is a file that keeps the books across restarts, a line a transfer; empty
	// keeps them in memory. It is locked for this process.
	Journal string
	// Behave decides how the nth settle (from 0) goes; nil is Honest.
	Behave func(n int, key string) Behaviour
}

// NewFacilitator returns a Facilitator. It fails if the journal cannot be read or locked.
func NewFacilitator(c FacilitatorConfig) (*Facilitator, error) {
	f := &Facilitator{config: c, moved: map[string]Transfer{}, settles: map[string]int{}}
	if c.Journal == "" {
		return f, nil
	}
	var err error
	if f.journal, err = os.OpenFile(c.Journal, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("open play-money journal: %w", err)
	}
	if err = lock(f.journal); err != nil {
		err = fmt.Errorf("%w: another process keeps it, whose play-money facilitator FACILITATOR_URL can name", err)
	} else {
		err = f.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("play-money journal %s: %w", c.Journal, err), f.Close())
	}
	return f, nil
}

// load reads the journal. A last line that a crash has cut is taken away, because the
// transfer was never acknowledged, and completed if only its end is missing.
func (f *Facilitator) load() error {
	text, err := io.ReadAll(f.journal)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		var t Transfer
		cut := !bytes.HasSuffix(line, []byte("\n"))
		switch err := json.Unmarshal(line, &t); {
		case cut && err != nil:
			return f.journal.Truncate(int64(len(text) - len(line)))
		case err != nil || t.Key == "":
			// Without it an authorization could execute again.
			return fmt.Errorf("line %d is not a transfer: move the file away to begin without play money spent", len(f.moved)+1)
		}
		f.moved[t.Key] = t
		if cut {
			return f.write("\n")
		}
	}
	return nil
}

// write adds to the journal. What cannot be written whole is taken back, or the next line
// would be lost with it.
func (f *Facilitator) write(text string) error {
	end, err := f.journal.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := f.journal.WriteString(text); err != nil {
		return errors.Join(fmt.Errorf("write play-money journal: %w", err), f.journal.Truncate(end))
	}
	return nil
}

// Close closes the journal.
func (f *Facilitator) Close() error {
	if f.journal == nil {
		return nil
	}
	return f.journal.Close()
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

// ServeHTTP implements http.Handler.
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
	key := f.keyOf(p.From, p.Nonce)
	f.mu.Lock()
	defer f.mu.Unlock()
	how := Honest
	if f.config.Behave != nil {
		how = f.config.Behave(f.calls, key)
	}
	f.calls++
	f.settles[key]++
	if err != nil {
		failed(w, requirements, p, err.Error(), "")
		return
	}
	f.perform(w, how, p, requirements)
}

// perform behaves in one of the ways. The lock is held: settlements are in order.
func (f *Facilitator) perform(w http.ResponseWriter, how Behaviour, p *x402.Payment, q x402.Requirements) {
	switch how {
	case Refuse:
		failed(w, q, p, insufficient, "")
		return
	case FailBefore:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case Unauthorized:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case TooMany:
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	key := f.keyOf(p.From, p.Nonce)
	t, used := f.moved[key]
	if used && how != Unconfirmed {
		failed(w, q, p, x402.ReasonNonceUsed, "")
		return
	}
	if !used {
		var err error
		if t, err = f.move(key, p); err != nil {
			failed(w, q, p, "unexpected_settle_error", "")
			return
		}
	}
	switch how {
	case RefuseAfter:
		failed(w, q, p, insufficient, "")
	case FailAfter:
		w.WriteHeader(http.StatusInternalServerError)
	case DropAfter:
		panic(http.ErrAbortHandler)
	case Unconfirmed:
		failed(w, q, p, "settlement_pending", t.Transaction)
	default:
		reply(w, http.StatusOK, x402.SettleResponse{Success: true, Transaction: t.Transaction, Network: q.Network, Payer: p.From.Checksum()})
	}
}

const insufficient = "invalid_exact_evm_insufficient_balance"

// move executes a transfer, and writes it to the journal before it is answered.
func (f *Facilitator) move(key string, p *x402.Payment) (Transfer, error) {
	sum := sha256.Sum256([]byte(key))
	t := Transfer{Key: key, Transaction: "0x" + hex.EncodeToString(sum[:]), Payee: p.To.String(), Value: p.Value.String(), At: f.config.Now().UTC()}
	if f.journal != nil {
		line, err := json.Marshal(t)
		if err == nil {
			err = f.write(string(line) + "\n")
		}
		if err != nil {
			return t, err
		}
	}
	f.moved[key] = t
	return t, nil
}

// keyOf names an authorization in the books.
func (f *Facilitator) keyOf(payer x402.Address, nonce [32]byte) string {
	return f.token() + payer.String() + "|0x" + hex.EncodeToString(nonce[:])
}

// token is how the keys of our transfers begin.
func (f *Facilitator) token() string {
	return strings.ToLower(f.config.Terms.Network + "|" + f.config.Terms.Asset + "|")
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
	p, err := paymentOf(body.PaymentPayload)
	if err != nil {
		return nil, *q, err
	}
	return p, *q, f.judge(p, *q)
}

// paymentOf reads a payment as it is sent to a facilitator.
func paymentOf(payload x402.Payload) (*x402.Payment, error) {
	header, err := x402.EncodeHeader(payload)
	if err != nil {
		return nil, err
	}
	return x402.DecodePayment(header)
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
	if p.Check(p.Digest(domain)) != nil {
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
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
