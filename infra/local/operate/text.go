package main

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

func second(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// dollars is an amount of USDC (6 decimals) as a price; one that is no number
// stays what it is.
func dollars(atomic string) string {
	const decimals = 6
	if atomic == "" || strings.Trim(atomic, "0123456789") != "" {
		return plain(atomic)
	}
	padded := strings.Repeat("0", max(decimals+1-len(atomic), 0)) + atomic
	whole, part := padded[:len(padded)-decimals], strings.TrimRight(padded[len(padded)-decimals:], "0")
	return "$" + whole + "." + part + strings.Repeat("0", max(2-len(part), 0))
}

// atomic reads an amount of a record: a positive number that a transfer can have.
func atomic(amount string) (*big.Int, bool) {
	const mostBits = 256
	if amount == "" || len(amount) > 78 || amount[0] == '0' || strings.Trim(amount, "0123456789") != "" {
		return nil, false
	}
	n, ok := new(big.Int).SetString(amount, 10)
	return n, ok && n.BitLen() <= mostBits
}

// counted is a number of things, each of which is called one.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// enumerated is a list in a sentence.
func enumerated(list []string) string {
	switch n := len(list); n {
	case 0:
		return ""
	case 1:
		return list[0]
	case 2:
		return list[0] + " and " + list[1]
	default:
		return strings.Join(list[:n-1], ", ") + ", and " + list[n-1]
	}
}

// plain is text from a record for a terminal: one cell, never empty.
func plain(s string) string {
	const most = 200
	if s == "" {
		return "-"
	}
	return printable.Clip(s, most)
}
