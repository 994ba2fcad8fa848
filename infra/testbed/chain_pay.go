package testbed

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/sha3"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Terms returns the terms of a payment to the account payTo in the token of a Chain.
func Terms(payTo x402.Address) x402.Terms {
	return x402.Terms{
		Network: BaseNetwork,
		Asset:   BaseUSDC,
		PayTo:   payTo.Checksum(),
		Name:    "USD Coin",
		Version: "2",
	}
}

// SignedTransfer is an authorization with its payer's signature.
type SignedTransfer struct {
	Authorization x402.Authorization
	Signature     []byte // the bytes of r, s and v
}

// Authorization returns an unsigned payment from a wallet. The nonce is random. The payment is
// already valid, and stays valid until the given time.
func Authorization(from *x402test.Wallet, to x402.Address, value int64, until time.Time) x402.Authorization {
	var nonce [32]byte
	_, _ = rand.Read(nonce[:]) // never fails
	return x402.Authorization{
		From:        from.Address().Checksum(),
		To:          to.Checksum(),
		Value:       strconv.FormatInt(value, 10),
		ValidAfter:  "0",
		ValidBefore: strconv.FormatInt(until.Unix(), 10),
		Nonce:       hexBytes(nonce[:]),
	}
}

// SignTransfer signs an authorization for the token's function transferWithAuthorization.
// Anybody may submit the result to the chain.
func SignTransfer(t testing.TB, w *x402test.Wallet, a x402.Authorization) SignedTransfer {
	digest := Must(x402test.Digest(a, Terms(w.Address())))
	return SignedTransfer{Authorization: a, Signature: w.Sign(digest)}
}

// Transfer submits a signed payment to the chain. A third party sends the transaction.
func (n *Chain) Transfer(t testing.TB, s SignedTransfer) ChainReceipt {
	return n.mustSend(t, Account(thirdParty), BaseUSDC, TransferCall(t, s))
}

// TryTransfer is like Transfer, but the payment may fail.
func (n *Chain) TryTransfer(t testing.TB, s SignedTransfer) ChainReceipt {
	return n.send(t, Account(thirdParty), BaseUSDC, TransferCall(t, s))
}

// Cancel cancels a nonce of a wallet. The wallet signs the cancellation, and a third party
// sends the transaction.
func (n *Chain) Cancel(t testing.TB, w *x402test.Wallet, nonce string) ChainReceipt {
	return n.mustSend(t, Account(thirdParty), BaseUSDC, CancelCall(t, w, nonce))
}

// Deposit transfers an amount, in atomic units, from one of the node's accounts. The transfer
// has no authorization.
func (n *Chain) Deposit(t testing.TB, from string, to x402.Address, value int64) ChainReceipt {
	return n.mustSend(t, from, BaseUSDC, calldata("transfer(address,uint256)", to, big.NewInt(value)))
}

// Batch makes several calls to the token in one transaction. If noisy is true, a contract other
// than the token emits an event after each call.
func (n *Chain) Batch(t testing.TB, noisy bool, calls ...[]byte) ChainReceipt {
	return n.mustSend(t, Account(thirdParty), batchAddress, calldata("run(address,bool,bytes[])", Address(t, BaseUSDC), noisy, calls))
}

// TransferCall returns the call data of transferWithAuthorization.
func TransferCall(t testing.TB, s SignedTransfer) []byte {
	a := s.Authorization
	args := []any{Address(t, a.From), Address(t, a.To)}
	for _, s := range []string{a.Value, a.ValidAfter, a.ValidBefore} {
		n, ok := new(big.Int).SetString(s, 10)
		if !ok {
			t.Fatalf("%q is not a number", s)
		}
		args = append(args, n)
	}
	args = append(args, NonceBytes(t, a.Nonce), s.Signature)
	return calldata("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)", args...)
}

// MintCall returns the call data of Mint. For the chain, minting is a transfer from the zero
// address.
func MintCall(to x402.Address, value int64) []byte {
	return calldata("mint(address,uint256)", to, big.NewInt(value))
}

// CancelCall returns the call data of cancelAuthorization for a nonce, signed by the wallet.
func CancelCall(t testing.TB, w *x402test.Wallet, nonce string) []byte {
	domain := Must(Terms(w.Address()).TokenDomain())
	typ := keccak([]byte("CancelAuthorization(address authorizer,bytes32 nonce)"))
	message := keccak(append(typ, encode(w.Address(), NonceBytes(t, nonce))...))
	signed := slices.Concat([]byte{0x19, 0x01}, domain[:], message)
	signature := w.Sign([32]byte(keccak(signed)))
	return calldata("cancelAuthorization(address,bytes32,bytes)", w.Address(), NonceBytes(t, nonce), signature)
}

// NonceBytes returns the nonce of an authorization as bytes.
func NonceBytes(t testing.TB, nonce string) [32]byte {
	return [32]byte(Must(hex.DecodeString(strings.TrimPrefix(nonce, "0x"))))
}

// Address parses an account's address.
func Address(t testing.TB, s string) x402.Address {
	return Must(x402.ParseAddress(s))
}

// calldata returns the ABI encoding of a function call.
func calldata(signature string, args ...any) []byte {
	return append(keccak([]byte(signature))[:4], encode(args...)...)
}

// encode returns the ABI encoding of arguments. Each argument has a head of 32 bytes. After
// all the heads come the tails of the arguments with a variable length.
func encode(args ...any) []byte {
	size := func(n int) []byte { return encode(big.NewInt(int64(n))) }
	head := make([]byte, 0, 32*len(args))
	var tail []byte
	for _, a := range args {
		switch v := a.(type) {
		case x402.Address:
			head = append(append(head, make([]byte, 12)...), v[:]...)
		case *big.Int:
			head = append(head, v.FillBytes(make([]byte, 32))...)
		case [32]byte:
			head = append(head, v[:]...)
		case bool:
			word := make([]byte, 32)
			if v {
				word[31] = 1
			}
			head = append(head, word...)
		case []byte:
			head = append(head, size(32*len(args)+len(tail))...)
			tail = append(append(tail, size(len(v))...), v...)
			tail = append(tail, make([]byte, (32-len(v)%32)%32)...)
		case [][]byte:
			head = append(head, size(32*len(args)+len(tail))...)
			items := make([]any, len(v))
			for i := range v {
				items[i] = v[i]
			}
			tail = append(append(tail, size(len(v))...), encode(items...)...)
		default:
			panic(fmt.Sprintf("cannot encode %T", a))
		}
	}
	return append(head, tail...)
}

func keccak(b []byte) []byte {
	h := sha3.NewLegacyKeccak256()
	h.Write(b)
	return h.Sum(nil)
}
