package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// consent is what has to be so before a charge is signed.
type consent struct {
	most     limit
	real     bool // the key may have money
	yes      bool // nobody is asked
	terminal bool // in is one
	in       io.Reader
	notes    io.Writer
}

// maxReply is how much of the reply to a question is read, in bytes.
const maxReply = 64

// agree returns an error unless the charge is within the limit and, for a real
// key, somebody says yes to it.
func (c consent) agree(ctx context.Context, w way) error {
	if err := c.most.allows(w); err != nil {
		return err
	}
	if !c.real || c.yes {
		return nil
	}
	if !c.terminal {
		return errors.New("standard input is no terminal, so that nobody can be asked whether to pay. YES=1 pays without a question")
	}
	fmt.Fprint(c.notes, "Sign this payment? [y/N] ")
	reply := make(chan string, 1)
	go func() { // a read from a terminal cannot be interrupted
		line, _ := bufio.NewReader(io.LimitReader(c.in, maxReply)).ReadString('\n') // no reply is no
		reply <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(c.notes)
		return errors.New("stopped before it was decided")
	case line := <-reply:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("not agreed to")
	}
}

// readKey reads a private key from a file that nobody else can read.
func readKey(path string) (*x402test.Wallet, error) {
	text, err := keyfile.Read(path)
	if err != nil {
		return nil, typed("KEY_FILE: %v", err)
	}
	defer clear(text)
	digits := strings.TrimPrefix(strings.TrimSpace(string(text)), "0x")
	wallet, err := x402test.WalletFromHex(digits, rand.Reader)
	if err != nil {
		return nil, typed("KEY_FILE: %q has to hold a private key: 32 bytes of hex, with 0x or without, and nothing else", path)
	}
	return wallet, nil
}

var privateKey = regexp.MustCompile(`^\s*(?:0x)?[0-9a-fA-F]{64}\s*$`)

// looksPrivate says whether a text could be a private key.
func looksPrivate(s string) bool { return privateKey.MatchString(s) }
