package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/big"
	"os"
	"regexp"
	"strings"

	"golang.org/x/term"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// defaultMax is the limit for a payment with a real key if MAX is not set. It is in units of
// the token, not in atomic units.
const defaultMax = "0.10"

// limit is the largest amount that may be paid. It is either in whole units of the token, or
// in atomic units. A limit in whole units is only for USDC, because the decimals of other
// tokens are unknown.
type limit struct {
	text     string
	maximum  *big.Rat
	isAtomic bool
}

// parseLimit parses MAX.
func parseLimit(s string) (limit, error) {
	digits, atomic := strings.CutSuffix(s, "atomic")
	form := `^[0-9]{1,60}(\.[0-9]{1,18})?$`
	if atomic {
		form = `^[0-9]{1,78}$`
	}
	most, ok := new(big.Rat).SetString(digits)
	if !ok || !regexp.MustCompile(form).MatchString(digits) {
		return limit{}, usageError("MAX=%.40q is not an amount: write it in units of the token (0.10) or in atomic units (5000atomic)", s)
	}
	return limit{s, most, atomic}, nil
}

// checkPrice returns an error if the price of a way to pay is above the limit, or if the two
// cannot be compared.
func (l limit) checkPrice(w bill.Way) error {
	most := l.maximum
	if !l.isAtomic {
		if !w.USDC {
			return newSafeError("the decimals of the token %s on %s are unknown, so MAX=%s cannot be compared with the price; "+
				"MAX=%satomic allows the price in atomic units", w.Asset, w.Network, l.text, w.Value.String())
		}
		if most = new(big.Rat).Mul(most, big.NewRat(bill.Unit, 1)); !most.IsInt() {
			return usageError("MAX=%s has more than the %d decimals of USDC", l.text, bill.Decimals)
		}
	}
	if new(big.Rat).SetInt(w.Value).Cmp(most) > 0 {
		return newSafeError("the price, %s, is above MAX=%s. Set a higher MAX to pay it", w.Price(), l.text)
	}
	return nil
}

// maxReply is how much of a person's reply is read, in bytes.
const maxReply = 64

// confirmPayment returns an error if the price is above the limit. If a person must confirm the
// payment, confirmPayment asks, and returns an error unless the person agrees.
func (p *payer) confirmPayment(ctx context.Context, w bill.Way) error {
	if p.limit != nil {
		if err := p.limit.checkPrice(w); err != nil {
			return err
		}
	}
	if !p.mustConfirm {
		return nil
	}
	if f, is := p.in.(*os.File); is && !term.IsTerminal(int(f.Fd())) {
		return errors.New("standard input is not a terminal, so nobody can confirm the payment. " +
			p.invocation.Text(called.Word{Name: "YES", Flag: "-yes"}) + " pays without asking")
	}
	p.printNote("Sign this payment? [y/N] ")
	reply := make(chan string, 1)
	go func() { // in a goroutine, because a read from a terminal cannot be interrupted
		line, _ := bufio.NewReader(io.LimitReader(p.in, maxReply)).ReadString('\n') // an error is ignored, because an empty reply does not confirm
		reply <- line
	}()
	select {
	case <-ctx.Done():
		p.printNote("\n")
		return errors.New("stopped before you confirmed")
	case line := <-reply:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("cancelled")
	}
}

// readKey returns the wallet of the private key in a file. Nobody but the owner of the file
// may be able to read or write it.
func readKey(path string) (*x402test.Wallet, error) {
	wallet, err := bill.ReadKey(path)
	if err != nil {
		return nil, usageError("KEY_FILE: %v", err)
	}
	return wallet, nil
}
