// Package programs starts programs, reads what they print, and ends them.
package programs

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Patience is how long a program may take: far longer than any takes, on a machine that is
// busy with something else.
const Patience = 10 * time.Minute

// TB is what this package needs of a testing.TB.
type TB interface {
	Cleanup(f func())
	Errorf(format string, v ...any)
	Fatal(v ...any)
	Fatalf(format string, v ...any)
}

// Process is a program that runs until it ends, or is stopped or killed.
type Process struct {
	URL string // where it is ready, from when Ready returns
	Log Output // what it prints, unless Cmd has a writer for that
	Cmd *exec.Cmd

	gone chan struct{} // closed at its end
	err  error         // that it ended with
	once sync.Once     // it was told to end
}

// Options are how a program is started, if not as most are.
type Options struct {
	Mark string // what the program prints before its address; empty is what the local runner prints
	Most int    // how many bytes of what it prints are kept; 0 is all of them
	// Begin starts the program where that is not as simple, such as in another network.
	Begin func(*exec.Cmd) error
}

// Start starts a program without waiting for anything. On Linux the kernel ends the program
// when this process ends, unless SysProcAttr is set.
func Start(cmd *exec.Cmd) (*Process, error) { return StartWith(cmd, Options{}) }

// StartWith is Start with options.
func StartWith(cmd *exec.Cmd, o Options) (*Process, error) {
	if o.Begin == nil {
		o.Begin = beginHere
	}
	p := &Process{Cmd: cmd, gone: make(chan struct{}), Log: Output{mark: o.Mark, most: o.Most}}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.Log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.Log
	}
	started := make(chan error)
	go func() {
		err := o.Begin(cmd)
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.gone)
		}
	}()
	return p, <-started
}

// beginHere starts a program in this network.
func beginHere(cmd *exec.Cmd) error {
	// DieWithUs is about the thread that starts the process: it must live as long.
	runtime.LockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = DieWithUs()
	}
	return cmd.Start()
}

// StartPeer starts a program that a test talks to, and that prints its address behind a mark.
// It is killed when the test ends.
func StartPeer(tb TB, cmd *exec.Cmd, mark string) *Process {
	p, err := StartWith(cmd, Options{Mark: mark})
	if err == nil {
		tb.Cleanup(p.Kill)
		err = p.Ready()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return p
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

// Stop ends the program politely, unless it was told to end before, and returns what it ended
// with.
func (p *Process) Stop() (err error) {
	p.once.Do(func() {
		_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		late := time.AfterFunc(Patience, func() { _ = p.Cmd.Process.Kill() })
		defer late.Stop()
		err = p.Wait()
	})
	return err
}

// End is Stop. The test fails when the program does not exit with 0, as it does not when the
// race detector has seen something.
func (p *Process) End(tb TB) {
	if err := p.Stop(); err != nil {
		tb.Errorf("%s ended with %v:\n%s", p, err, &p.Log)
	}
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

// Wait waits until the program has ended, and returns what it ended with.
func (p *Process) Wait() error {
	<-p.gone
	return p.err
}

// String is the program's name.
func (p *Process) String() string { return filepath.Base(p.Cmd.Path) }

// Run is what a program prints that must succeed.
func Run(tb TB, cmd *exec.Cmd) []byte {
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v\n%.4000s\n%.4000s", cmd, err, out, &complaints)
	}
	return out
}

// Succeed runs a program in a folder, and says what it printed when it fails.
func Succeed(cmd *exec.Cmd, dir string) error {
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%.4000s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

// Memory is a line of what the kernel says about the memory of a process, such as
// VmRSS, in KiB.
func Memory(tb TB, pid int, line string) (kib int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\n"+line+":")
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		tb.Fatalf("the status of process %d has no %s: %v", pid, line, err)
	}
	return kib
}
