package x402

import (
	"context"
	"math/big"
	"time"
)

// Scanner reads a payee's incoming transfers from the chain. What that costs
// depends on what was transferred, not on what was requested and never paid.
type Scanner interface {
	// Transfers reads what reached payee from block from on, in bounded work. With
	// an error nothing was read, and Next is from. A failure after something was
	// read ends the batch without an error, and is met again by the next call. So
	// a caller that stores Next after every batch misses no transfer and sees none
	// twice, wherever it is interrupted.
	Transfers(ctx context.Context, payee Address, from uint64) (Batch, error)
	// BlockAt is the first block whose time is not before t, where a cursor
	// for what happened since t starts. Where no safe block is that young, it
	// is the one after the safe block.
	BlockAt(ctx context.Context, t time.Time) (uint64, error)
	// SafeBlock is the newest block that will not be undone.
	SafeBlock(ctx context.Context) (uint64, error)
}

// Batch is what one call of a Scanner has read.
type Batch struct {
	// Transfers are in the order of the chain, and of whole blocks only.
	Transfers []Transfer
	// Next is the first block that was not read, from the one that was asked for on.
	Next uint64
	// Safe is the newest block that could have been read, and SafeTime its time. A node
	// that lags may give one below Next-1; then there was nothing to read.
	Safe     uint64
	SafeTime time.Time
}

// Done says whether there was nothing left to read.
func (b Batch) Done() bool { return b.Next > b.Safe }

// Transfer is money that reached a payee, and the authorization that moved it,
// if one did.
type Transfer struct {
	Transaction string // lower case hex
	Block       uint64
	BlockHash   string // lower case hex
	LogIndex    uint64 // in the block; with BlockHash, the transfer's identity
	Time        time.Time
	From, To    Address
	Value       *big.Int // atomic units; may be 0
	// Authorized says that the transfer is the one that From's authorization
	// with Nonce made. Any other is a deposit without one.
	Authorized bool
	Nonce      [32]byte
}
