package purse

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Purchase is one question to one tool, and the payment for its answer.
type Purchase struct {
	Version   int             `json:"version"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"` // canonical JSON, as buyer.Canonical returns it
	// Key identifies the purchase to servers that charge only once for each key.
	Key     string   `json:"key,omitempty"`
	Payment *Payment `json:"payment,omitempty"` // the payment that was signed for this purchase
	Answer  *Answer  `json:"answer,omitempty"`
}

// Payment is a signed payment and what became of it.
type Payment struct {
	Payload     json.RawMessage `json:"payload"` // the payment as the server receives it
	Keyed       bool            `json:"keyed"`   // whether the server accepts the purchase's key
	Payer       string          `json:"payer"`
	PayTo       string          `json:"payTo"`
	Network     string          `json:"network"`
	Asset       string          `json:"asset"`
	Amount      string          `json:"amount"` // in atomic units
	Price       string          `json:"price"`  // the amount as text for a person
	Signed      time.Time       `json:"signed"`
	ValidBefore time.Time       `json:"validBefore"`
	// Sending means that a process has begun to send the payment and has not recorded the
	// result yet.
	Sending bool `json:"sending"`
	// Lost means that the payment was sent at least once without getting an answer, and so may
	// have been charged.
	Lost bool `json:"lost"`
	// Charged says whether the server charged, according to the server. It is nil if the
	// server does not say.
	Charged *bool `json:"charged,omitempty"`
	// NotBefore is the earliest time at which the server accepts another try; zero means any
	// time.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Said is the reason that the server gave for not answering.
	Said string `json:"said,omitempty"`
}

// Answer is the server's reply to a purchase.
type Answer struct {
	At    time.Time       `json:"at"`
	Reply json.RawMessage `json:"reply"`
}

const purchaseVersion = 1

// ID returns a name for a purchase, which depends on the server, the tool and the canonical
// arguments.
func ID(server, tool string, arguments []byte) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(server), []byte(tool), arguments} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ID returns the name of this purchase.
func (c *Purchase) ID() string { return ID(c.Server, c.Tool, c.Arguments) }

// Hold locks a purchase and reads it. Until the caller releases the purchase, nobody else can
// send its payment.
func (p *Purse) Hold(ctx context.Context, server, tool string, arguments []byte) (c *Purchase, release func(), err error) {
	id := ID(server, tool, arguments)
	unlock, err := p.lock(ctx, p.path(id, ".lock"))
	if err != nil {
		return nil, nil, err
	}
	release = func() {
		// The lock file of a purchase that was not stored is removed.
		if _, err := os.Stat(p.path(id, ".json")); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(p.path(id, ".lock"))
		}
		unlock()
	}
	c, err = p.read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Purchase{
			Version:   purchaseVersion,
			Server:    server,
			Tool:      tool,
			Arguments: arguments,
		}, release, nil
	case err != nil:
		release()
		return nil, nil, fmt.Errorf("%w; nothing is paid for this question until a person has inspected it", err)
	}
	return c, release, nil
}

func (p *Purse) path(id, kind string) string { return filepath.Join(p.purchases(), id+kind) }

func (p *Purse) read(id string) (*Purchase, error) {
	c := &Purchase{}
	path := p.path(id, ".json")
	err := readJSON(path, c)
	if err == nil && (c.Version != purchaseVersion || c.ID() != id) {
		err = errors.New("it is not a purchase of this name and version")
	}
	if err != nil {
		return nil, fmt.Errorf("read the purchase in %s: %w", path, err)
	}
	return c, nil
}

// Keep writes a purchase to disk. The caller must hold the purchase.
func (p *Purse) Keep(c *Purchase) error {
	if err := replaceFile(p.path(c.ID(), ".json"), c); err != nil {
		return fmt.Errorf("keep the purchase: %w", err)
	}
	return nil
}

// Drop removes a purchase that the caller holds. Do not drop a purchase whose payment can
// still be charged: the next call would sign another payment for it.
func (p *Purse) Drop(c *Purchase) error {
	err := os.Remove(p.path(c.ID(), ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Purchases returns the stored purchases. The error joins the errors of purchases that cannot
// be read.
func (p *Purse) Purchases() ([]*Purchase, error) {
	files, err := os.ReadDir(p.purchases())
	var all []*Purchase
	for _, f := range files {
		id, is := strings.CutSuffix(f.Name(), ".json")
		if !is {
			continue
		}
		c, failed := p.read(id)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		all = append(all, c)
	}
	return all, err
}

// Sweep removes purchases whose answer is more than a day old, and the unfinished files of
// killed processes.
func (p *Purse) Sweep(ctx context.Context) error {
	all, err := p.Purchases()
	for _, c := range all {
		if c.Answer == nil || p.now().Before(c.Answer.At.Add(Day)) {
			continue
		}
		err = errors.Join(err, p.sweep(ctx, c))
	}
	left, failed := filepath.Glob(filepath.Join(p.purchases(), "*"+unfinishedSuffix))
	err = errors.Join(err, failed)
	for _, path := range left {
		if info, failed := os.Stat(path); failed == nil && p.now().After(info.ModTime().Add(Day)) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

func (p *Purse) sweep(ctx context.Context, c *Purchase) error {
	held, release, err := p.Hold(ctx, c.Server, c.Tool, c.Arguments)
	if err != nil {
		return err
	}
	defer release()
	if held.Answer == nil || p.now().Before(held.Answer.At.Add(Day)) {
		return nil
	}
	return p.Drop(held)
}
