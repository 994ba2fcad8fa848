package purse

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Allowance is what a person has allowed: a payee, a token and amounts.
type Allowance struct {
	Version int       `json:"version"`
	Server  string    `json:"server"`
	PayTo   string    `json:"payTo"`
	Network string    `json:"network"`
	Asset   string    `json:"asset"`
	PerCall string    `json:"perCall"` // in atomic units
	PerDay  string    `json:"perDay"`  // for any 24 hours, in atomic units
	KeyFile string    `json:"keyFile"` // the file with the private key of the wallet that pays
	Allowed time.Time `json:"allowed"`
	// Node is the URL of a node of the network. The node can tell whether a payment was made.
	// If Node is empty, the network's public node is used. With NoNode, no node is used.
	Node string `json:"node,omitempty"`
}

// NoNode is the value of an Allowance's Node if no node may be asked. The server's statements
// are then the only information about a payment.
const NoNode = "none"

const allowanceVersion = 1

// AllowanceFile returns the path of the file with the allowance.
func (p *Purse) AllowanceFile() string { return filepath.Join(p.dir, "allowed.json") }

// Allow writes an allowance. It replaces any earlier allowance.
func (p *Purse) Allow(a Allowance) error {
	a.Version = allowanceVersion
	return replaceFile(p.AllowanceFile(), a)
}

// ReadAllowance reads the allowance for a server from AllowanceFile. It returns nil if there
// is no such file, and an error if others than the owner of the file can access it.
func (p *Purse) ReadAllowance(server string) (*Allowance, error) {
	const limit = 64 << 10
	text, err := keyfile.ReadUpTo(p.AllowanceFile(), limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is allowed: %w", err)
	}
	a := &Allowance{}
	err = json.Unmarshal(text, a)
	_, callErr := x402.ParseUint256(a.PerCall)
	_, dayErr := x402.ParseUint256(a.PerDay)
	_, payeeErr := x402.ParseAddress(a.PayTo)
	_, assetErr := x402.ParseAddress(a.Asset)
	if err = errors.Join(err, callErr, dayErr, payeeErr, assetErr); err == nil && (a.Version != allowanceVersion || a.Server != server || a.KeyFile == "") {
		err = errors.New("it is not for this server and this version")
	}
	if err != nil {
		return nil, fmt.Errorf("read what is allowed, in %s: %w", p.AllowanceFile(), err)
	}
	return a, nil
}

// Limits returns the largest amounts for one call and for any 24 hours, in atomic units. The
// allowance must come from ReadAllowance, which validates the amounts.
func (a *Allowance) Limits() (perCall, perDay *big.Int) {
	return parseValidAmount(a.PerCall), parseValidAmount(a.PerDay)
}

// parseValidAmount parses an amount that was validated before.
func parseValidAmount(s string) *big.Int {
	n, err := x402.ParseUint256(s)
	if err != nil {
		return new(big.Int)
	}
	return n
}
