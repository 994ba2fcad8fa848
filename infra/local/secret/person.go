package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
)

// maxValue limits the length of a value, in bytes. A PEM key or five URLs are shorter.
const maxValue = 12 << 10

// person is the person at the keyboard. The method readHidden asks for input without showing
// what is typed.
type person interface {
	readHidden(ctx context.Context, question string) ([]byte, error)
	confirm(ctx context.Context, question string) (bool, error)
}

// readValue reads the value of a part from a file, from a person or from standard input. The
// value is never read from an argument or an environment variable, because other processes can
// see those.
func (o order) readValue(ctx context.Context, question string) (text []byte, err error) {
	if o.file != "" {
		text, err = keyfile.ReadUpTo(o.file, maxValue+1)
	} else {
		text, err = o.person.readHidden(ctx, question+" (not shown): ")
	}
	if err == nil && len(text) > maxValue {
		err = fmt.Errorf("the value has more than %d bytes", maxValue)
	}
	return text, err
}

// terminal is a person at a terminal. If the input is not a terminal, the method readHidden
// reads the value until the end of the input, and the method confirm fails.
type terminal struct {
	in  *os.File
	out io.Writer
}

func (t terminal) readHidden(ctx context.Context, question string) ([]byte, error) {
	if !t.isTerminal() {
		return io.ReadAll(io.LimitReader(t.in, maxValue+1))
	}
	before, err := term.GetState(int(t.in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("look at the terminal: %w", err)
	}
	fmt.Fprint(t.out, question)
	defer fmt.Fprintln(t.out)
	text, err := readUntilDone(ctx, func() ([]byte, error) {
		return term.ReadPassword(int(t.in.Fd()))
	})
	if err != nil {
		_ = term.Restore(int(t.in.Fd()), before) // a read that was abandoned leaves the echo off
		return nil, fmt.Errorf("read the value from the terminal: %w", err)
	}
	return text, nil
}

func (t terminal) confirm(ctx context.Context, question string) (bool, error) {
	if !t.isTerminal() {
		return false, errors.New("standard input is not a terminal, so nobody can be asked")
	}
	fmt.Fprint(t.out, question)
	line, err := readUntilDone(ctx, func() ([]byte, error) {
		const most = 64
		line := make([]byte, most) // a terminal returns one line at a time
		n, err := t.in.Read(line)
		return line[:n], err
	})
	if err != nil && !errors.Is(err, io.EOF) { // at the end of the input the reply is empty, which does not confirm
		return false, fmt.Errorf("read the reply: %w", err)
	}
	reply := strings.ToLower(strings.TrimSpace(string(line)))
	return reply == "y" || reply == "yes", nil
}

func (t terminal) isTerminal() bool { return term.IsTerminal(int(t.in.Fd())) }

// readUntilDone calls a function that reads from a terminal, and returns its result. Such a
// read cannot be interrupted. If ctx is done first, readUntilDone returns at once, and the
// read goes on in its goroutine.
func readUntilDone(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-done:
		return r.text, r.err
	}
}
