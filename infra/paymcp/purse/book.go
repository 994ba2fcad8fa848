package purse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Day is how long a signature counts against the budget. It is any period of 24 hours, not a
// calendar day.
const Day = 24 * time.Hour

// Entry is one signature in the book.
type Entry struct {
	Nonce   string    `json:"nonce"`
	Tool    string    `json:"tool"`
	Network string    `json:"network"`
	Asset   string    `json:"asset"`
	Amount  string    `json:"amount"` // in atomic units
	At      time.Time `json:"at"`
}

// book is the content of the file that records the signatures of the last 24 hours.
type book struct {
	Version int     `json:"version"`
	Signed  []Entry `json:"signed"`
}

const (
	bookVersion = 1
	maxFile     = 16 << 20 // the size limit of a file, in bytes
)

// OverBudget means that a signature would exceed the budget.
type OverBudget struct {
	Spent  *big.Int  // the sum of the amounts signed for in the last 24 hours
	RoomAt time.Time // when the budget will have room for the signature; zero if never
}

// Error implements error.
func (o *OverBudget) Error() string { return fmt.Sprintf("the budget has %s spent", o.Spent) }

func (p *Purse) bookFile() string { return filepath.Join(p.dir, "book.json") }

// Reserve writes a signature into the book. If the sum of the last 24 hours in the same token
// would then exceed limit (the budget), Reserve writes nothing and returns an *OverBudget.
func (p *Purse) Reserve(ctx context.Context, e Entry, limit *big.Int) error {
	unlock, err := p.lock(ctx, filepath.Join(p.dir, "book.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	signed, err := p.RecentEntries()
	if err != nil {
		return err
	}
	amount, err := x402.ParseUint256(e.Amount)
	if err != nil {
		return err
	}
	spent := Sum(signed, e.Network, e.Asset)
	if new(big.Int).Add(spent, amount).Cmp(limit) > 0 {
		return &OverBudget{Spent: spent, RoomAt: timeOfRoom(signed, e, amount, limit)}
	}
	return replaceFile(p.bookFile(), book{bookVersion, append(signed, e)})
}

// RecentEntries returns the entries of the last 24 hours, oldest first.
func (p *Purse) RecentEntries() ([]Entry, error) {
	var b book
	err := readJSON(p.bookFile(), &b)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && b.Version != bookVersion:
		err = fmt.Errorf("it is of version %d, and this program knows %d", b.Version, bookVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was spent, in %s: %w; nothing is paid until a person repairs it, or moves it away, which restarts the budget", p.bookFile(), err)
	}
	var recent []Entry
	for _, e := range b.Signed {
		if p.now().Before(e.At.Add(Day)) {
			recent = append(recent, e)
		}
	}
	return recent, nil
}

// Sum returns the total of entries in one token.
func Sum(entries []Entry, network, asset string) *big.Int {
	sum := new(big.Int)
	for _, e := range entries {
		if amount, err := x402.ParseUint256(e.Amount); err == nil && e.isInToken(network, asset) {
			sum.Add(sum, amount)
		}
	}
	return sum
}

func (e Entry) isInToken(network, asset string) bool {
	return e.Network == network && strings.EqualFold(e.Asset, asset)
}

// timeOfRoom returns the time from which the budget has room for the entry's amount. From then
// on, enough of the signed entries are older than a day. If the amount alone exceeds the
// budget, timeOfRoom returns the zero time.
func timeOfRoom(signed []Entry, e Entry, amount, limit *big.Int) time.Time {
	if amount.Cmp(limit) > 0 {
		return time.Time{}
	}
	for i, former := range signed {
		later := Sum(signed[i+1:], e.Network, e.Asset)
		if later.Add(later, amount).Cmp(limit) <= 0 {
			return former.At.Add(Day)
		}
	}
	return time.Time{}
}

// readJSON reads a file of this package.
func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
