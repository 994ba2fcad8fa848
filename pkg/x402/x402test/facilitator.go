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

// Transfer is one movement of play money.
type Transfer struct {
	Key         string    `json:"key"` // network|asset|payer|nonce
	Transaction string    `json:"transaction"`
	Payee       string    `json:"payee"`
	Value       string    `json:"value"`
	At          time.Time `json:"at"`
}

// Facilitator settles payments in play money. Every account has enough money, and every
// authorization executes at most once, as on a chain. A Facilitator is an http.Handler for the
// paths /settle, /verify, /supported, and /transfers, which lists all transfers.
type Facilitator struct {
	config       FacilitatorConfig
	mu           sync.Mutex
	journal      *os.File // nil if there is none
	transfers    map[string]Transfer
	settles      map[string]int // the number of calls of /settle, by key
	calls        int
	verifies     int
	pendingCalls int
}

// FacilitatorConfig holds the settings of a Facilitator. Terms and Now are required.
type FacilitatorConfig struct {
	Terms x402.Terms
	Now   func() time.Time
	// Journal is the name of a file that keeps the transfers across restarts, one on each line.
	// The file is locked for this process. Without a name, the transfers are kept in memory.
	Journal string
	// Behave returns how a call of /settle goes. n is the number of earlier calls of /settle,
	// and key names the authorization, as in Transfer.Key. If Behave is nil, every call is
	// Honest.
	Behave func(n int, key string) Behaviour
	// Slow returns how long a slow Behaviour delays its answer or its transfer. If Slow is
	// nil, the delay is two seconds.
	Slow func(how Behaviour) time.Duration
}

// ErrJournalInUse is returned by NewFacilitator if another Facilitator has the journal open.
var ErrJournalInUse = errors.New("in use by another process")

// NewFacilitator returns a Facilitator. It fails if the journal cannot be read or locked.
func NewFacilitator(c FacilitatorConfig) (*Facilitator, error) {
	f := newBooks(c)
	if c.Journal == "" {
		return f, nil
	}
	var err error
	if f.journal, err = os.OpenFile(c.Journal, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("open play-money journal: %w", err)
	}
	if err = lock(f.journal); err == nil {
		err = f.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("play-money journal %s: %w", c.Journal, err), f.Close())
	}
	return f, nil
}

// newBooks returns a Facilitator without a journal.
func newBooks(c FacilitatorConfig) *Facilitator {
	return &Facilitator{config: c, transfers: map[string]Transfer{}, settles: map[string]int{}}
}

// load reads the journal. If a crash has cut the last line, load removes that line, because its
// transfer was never acknowledged. If only the line break is missing, load adds it.
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
			// Skipping the line could let an authorization execute again.
			return fmt.Errorf("line %d is not a transfer: move the file away to begin without play money spent", len(f.transfers)+1)
		}
		f.transfers[t.Key] = t
		if cut {
			return f.write("\n")
		}
	}
	return nil
}

// write appends a text to the journal: the line of a transfer, or a missing line break. If it
// cannot write the whole text, it removes the part that was written. Otherwise the next line
// would be joined to that part, and both would be unreadable.
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

// Transfers returns all transfers.
func (f *Facilitator) Transfers() []Transfer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.AppendSeq([]Transfer{}, maps.Values(f.transfers)) // not nil, which JSON writes as null
}

// Settles returns how often /settle was called in all, and the highest number of calls for one
// authorization.
func (f *Facilitator) Settles() (all, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.settles {
		all, most = all+n, max(most, n)
	}
	return all, most
}

// Verifies returns how often /verify was called.
func (f *Facilitator) Verifies() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.verifies
}

// Pending returns how many settlements are in progress. A settlement is in progress while it is
// not answered, or while its money is still to move after the answer.
func (f *Facilitator) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pendingCalls
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

// countVerify counts a call of /verify.
func (f *Facilitator) countVerify() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.verifies++
}

func (f *Facilitator) verify(w http.ResponseWriter, r *http.Request) {
	f.countVerify()
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
	f.settlement(p, requirements, err).send(w, r)
}

// move executes a transfer, and writes it to the journal before the call is answered.
func (f *Facilitator) move(key string, p *x402.Payment) (Transfer, error) {
	sum := sha256.Sum256([]byte(key))
	t := Transfer{
		Key:         key,
		Transaction: "0x" + hex.EncodeToString(sum[:]),
		Payee:       p.To.String(),
		Value:       p.Value.String(),
		At:          f.config.Now().UTC(),
	}
	if f.journal != nil {
		line, err := json.Marshal(t)
		if err == nil {
			err = f.write(string(line) + "\n")
		}
		if err != nil {
			return t, err
		}
	}
	f.transfers[key] = t
	return t, nil
}

// keyOf returns the key of an authorization in the journal.
func (f *Facilitator) keyOf(payer x402.Address, nonce [32]byte) string {
	return f.token() + payer.String() + "|0x" + hex.EncodeToString(nonce[:])
}

// token returns the prefix of the keys of all transfers in the seller's token.
func (f *Facilitator) token() string {
	return strings.ToLower(f.config.Terms.Network + "|" + f.config.Terms.Asset + "|")
}

// read decodes a request, and checks its payment as the reference facilitators do. The error
// says what is wrong with the payment. If the request contains no payment that can be read,
// the payment is nil.
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
	return p, *q, f.check(p, *q)
}

// paymentOf decodes a payment from the JSON that a facilitator receives.
func paymentOf(payload x402.Payload) (*x402.Payment, error) {
	header, err := x402.EncodeHeader(payload)
	if err != nil {
		return nil, err
	}
	return x402.DecodePayment(header)
}

// check returns an error if a payment is invalid. The error is the reason that the reference
// facilitators give.
func (f *Facilitator) check(p *x402.Payment, q x402.Requirements) error {
	payTo, err := x402.ParseAddress(q.PayTo)
	if err != nil || p.To != payTo {
		return errors.New("invalid_exact_evm_recipient_mismatch")
	}
	if p.Value.String() != q.Amount {
		return errors.New("invalid_exact_evm_payload_authorization_value_mismatch")
	}
	soonest := f.config.Now().Add(6 * time.Second).Unix()
	if p.ValidBefore.IsInt64() && p.ValidBefore.Int64() < soonest {
		return errors.New(reasonExpired)
	}
	terms := x402.Terms{
		Network: q.Network,
		Asset:   q.Asset,
		Name:    q.Extra.Name,
		Version: q.Extra.Version,
	}
	domain, err := terms.TokenDomain()
	if err != nil {
		return errors.New("invalid_exact_evm_missing_eip712_domain")
	}
	if p.Check(p.Digest(domain)) != nil {
		return errors.New(reasonBadSignature)
	}
	return nil
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
