package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"strings"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// The limits of a throwaway key, in atomic units of USDC: 1 USDC for one call, and 100 USDC in
// any 24 hours.
const (
	playPerCall = bill.Unit
	playPerDay  = 100 * bill.Unit
)

// folderFor returns a readable and unique name for a server's folder.
func folderFor(at *url.URL) string {
	sum := sha256.Sum256([]byte(at.String()))
	return regexp.MustCompile(`[^a-z0-9.]+`).ReplaceAllString(at.Host, "-") + "-" + hex.EncodeToString(sum[:6])
}

// errNotAllowed means that nobody has allowed payments of real money to the server.
var errNotAllowed = errors.New("nobody has allowed this program to pay real money to this server")

// terms returns the limits that apply now. If this server may not be paid, the error says how a
// person can allow it.
func (t *till) terms() (buyer.Terms, error) {
	a, err := t.purse.ReadAllowance(t.serverURL.String())
	switch {
	case err != nil:
		return buyer.Terms{}, err
	case a != nil:
		perCall, perDay := a.Limits()
		return buyer.Terms{
			PayTo:   a.PayTo,
			Network: a.Network,
			Asset:   a.Asset,
			PerCall: perCall,
			PerDay:  perDay,
		}, nil
	case bill.IsLoopback(t.serverURL):
		return buyer.Terms{
			IsPlayMoney: true,
			PerCall:     big.NewInt(playPerCall),
			PerDay:      big.NewInt(playPerDay),
		}, nil
	}
	return buyer.Terms{}, fmt.Errorf("%w; a person can, in a terminal: %s", errNotAllowed, t.commandLine("allow"))
}

// wallet returns the wallet that pays. If real money is allowed, the wallet has the key in the
// key file of the allowance. Otherwise it has the throwaway key.
func (t *till) wallet() (*x402test.Wallet, error) {
	a, err := t.purse.ReadAllowance(t.serverURL.String())
	if err != nil {
		return nil, err
	}
	if a != nil {
		return bill.ReadKey(a.KeyFile)
	}
	return bill.ThrowawayWallet(t.purse.KeyFile())
}

// nodeOf returns a node of the network, which can tell whether a payment was made. For play
// money, which is on no chain, nodeOf returns nil. It also returns nil if there is no node to
// ask.
func (t *till) nodeOf(network, asset string) x402.Evidence {
	a, err := t.purse.ReadAllowance(t.serverURL.String())
	if err != nil || a == nil {
		return nil
	}
	node := cmp.Or(a.Node, x402.Network(network).PublicNode)
	if node == "" || node == purse.NoNode {
		return nil
	}
	nodes, err := chain.New(chain.Config{
		URLs:      []string{node},
		Network:   network,
		Asset:     asset,
		Now:       t.now,
		UserAgent: "pay-mcp",
	})
	if err != nil {
		return nil
	}
	return nodes
}

// checkReceipt returns what is wrong with the receipt of an answer. It returns "" if the
// receipt is valid, and also if there is none, because the protocol does not require a
// receipt.
func (t *till) checkReceipt(ctx context.Context, b buyer.PaidAnswer) string {
	var settled x402.SettleResponse
	raw, paid := b.Reply.Meta[mcp.KeyResponse]
	if !paid {
		return ""
	}
	if err := json.Unmarshal(raw, &settled); err != nil {
		return "the settlement in the server's answer cannot be read."
	}
	signed := settled.Extensions.OfferReceipt.Info.Receipt
	if signed.Format != x402.FormatJWS {
		return ""
	}
	d := bill.Delivery{
		RequestURL: t.urlOfQuestion(b),
		Resource:   b.Resource,
		Settled:    settled,
		Body:       []byte(b.Reply.Text()),
		Transport:  limitedTransport{t.transport},
	}
	if d.RequestURL == nil {
		d.RequestURL = t.serverURL
		d.AnyRequest = true
	}
	_, _, err := d.Verify(ctx, signed.Signature)
	switch {
	case errors.Is(err, bill.ErrUnchecked):
		return fmt.Sprintf("the signed receipt of this answer could not be checked: %s.", withSafeText(err))
	case err != nil:
		return fmt.Sprintf("the signed receipt of this answer does not hold: %s. The answer is shown anyway; tell a person.", withSafeText(err))
	}
	return ""
}

// urlOfQuestion returns the URL at which the HTTP API answers the same question as a tool
// call. For a tool of another product it returns nil.
func (t *till) urlOfQuestion(b buyer.PaidAnswer) *url.URL {
	var arguments map[string]any
	if json.Unmarshal(b.Arguments, &arguments) != nil || !strings.HasSuffix(t.serverURL.Path, catalog.PathMCP) {
		return nil
	}
	for _, op := range catalog.All() {
		if op.Tool != b.Tool {
			continue
		}
		query := url.Values{}
		for name, v := range arguments {
			query.Set(name, fmt.Sprint(v))
		}
		return &url.URL{
			Scheme:   t.serverURL.Scheme,
			Host:     t.serverURL.Host,
			Path:     op.Path,
			RawQuery: query.Encode(),
		}
	}
	return nil
}
