package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that runs until it is stopped or killed.
type Process struct {
	URL string // that it said it is ready on
	Log Output // all that it prints
	Cmd *exec.Cmd

	gone chan struct{} // closed at its end
	err  error         // that it ended with
	once sync.Once     // it was told to end
}

// Launch starts a program without waiting for anything; begin starts it where it
// is not to run in the network of this process, and is nil otherwise. On Linux
// the kernel ends the program when this process ends.
func Launch(cmd *exec.Cmd, begin func(*exec.Cmd) error) (*Process, error) {
	p := &Process{Cmd: cmd, gone: make(chan struct{})}
	return p, p.launch(begin)
}

// startPeer starts a program of others, which is killed when the test ends. It is ready
// when it prints a mark; its URL is what stands behind that.
func startPeer(tb testing.TB, cmd *exec.Cmd, mark string) *Process {
	tb.Helper()
	p := &Process{Cmd: cmd, gone: make(chan struct{}), Log: Output{mark: mark}}
	err := p.launch(nil)
	if err == nil {
		tb.Cleanup(p.Kill)
		err = p.Ready()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func (p *Process) launch(begin func(*exec.Cmd) error) error {
	cmd := p.Cmd
	cmd.Stdout, cmd.Stderr = &p.Log, &p.Log
	started := make(chan error)
	go func() {
		if begin == nil {
			// dieWithUs is about the thread that starts the
			// process: it must live as long.
			runtime.LockOSThread()
			cmd.SysProcAttr, begin = dieWithUs(), (*exec.Cmd).Start
		}
		err := begin(cmd)
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.gone)
		}
	}()
	return <-started
}

// Ready waits until the program says where it is ready. It is an error when it
// ends before, or does not say so in time; then it runs no more.
func (p *Process) Ready() error {
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case p.URL = <-p.Log.Ready():
		return nil
	case <-p.gone:
		p.Kill()
		return errors.Join(p.err, fmt.Errorf("%s ended before it was ready\n%s", p, &p.Log))
	case <-late.C:
		p.Kill()
		return fmt.Errorf("%s did not get ready:\n%s", p, &p.Log)
	}
}

// Listens waits until the program takes connections at an address. It is an error when it
// ends before.
func (p *Process) Listens(addr string) error {
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.gone:
			return errors.Join(p.err, fmt.Errorf("%s ended before it was ready\n%s", p, &p.Log))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the program politely, unless it was told to end before. It is an
// error when the program does not exit with 0, as it does not when the race
// detector has seen something.
func (p *Process) Stop() error {
	var err error
	p.once.Do(func() {
		_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		late := time.AfterFunc(Patience, func() { _ = p.Cmd.Process.Kill() })
		defer late.Stop()
		if <-p.gone; p.err != nil {
			err = fmt.Errorf("%s ended with %w:\n%s", p, p.err, &p.Log)
		}
	})
	return err
}

// Kill is kill -9, unless the program was told to end before. It returns when
// the program is gone.
func (p *Process) Kill() {
	p.once.Do(func() {
		_ = p.Cmd.Process.Kill() // it may be gone
		<-p.gone
	})
}

// Gone is closed when the program has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// String is the program's name.
func (p *Process) String() string { return filepath.Base(p.Cmd.Path) }

// Start launches a program and waits until it is ready. At the end of the test
// it is stopped, and must have ended well.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p, err := Launch(cmd, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.End(tb) })
	if err := p.Ready(); err != nil {
		tb.Fatal(err)
	}
	return p
}

// Run is what a program prints that must succeed.
func Run(tb testing.TB, cmd *exec.Cmd) []byte {
	tb.Helper()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v\n%.4000s\n%.4000s", cmd, err, out, &complaints)
	}
	return out
}

// succeed runs a program in a folder, and says what it printed when it fails.
func succeed(cmd *exec.Cmd, dir string) error {
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%.4000s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

// End is Stop for a test, which fails when the program does not end well.
func (p *Process) End(tb testing.TB) {
	tb.Helper()
	if err := p.Stop(); err != nil {
		tb.Error(err)
	}
}
