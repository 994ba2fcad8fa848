// Package programs starts programs, reads their output, and ends them.
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

// Patience is the time limit for a program. Even on a busy machine, every program is much
// faster than this.
const Patience = 10 * time.Minute

// TB has the methods of a testing.TB that this package uses.
type TB interface {
	Cleanup(f func())
	Errorf(format string, v ...any)
	Fatal(v ...any)
	Fatalf(format string, v ...any)
}

// Process is a program that Start, StartWith or StartPeer has started.
type Process struct {
	URL string // the address that the program printed when it was ready; set by Ready
	Log Output // the program's output, unless Cmd has other writers
	Cmd *exec.Cmd

	ended chan struct{} // closed when the program has ended
	err   error         // the result of Cmd.Wait
	once  sync.Once     // lets only the first Stop or Kill act
}

// Options change how StartWith starts a program.
type Options struct {
	Mark string // the text before the address in the output; "" means the local runner's text
	Most int    // the number of bytes at the end of the output that are kept; 0 means all
	// Begin starts the program in a special way, such as in another network. If it is nil, the
	// program is started in this network.
	Begin func(*exec.Cmd) error
}

// Start starts a program and returns at once. On Linux the kernel kills the program when this
// process ends, unless cmd.SysProcAttr is set.
func Start(cmd *exec.Cmd) (*Process, error) { return StartWith(cmd, Options{}) }

// StartWith is like Start, with options.
func StartWith(cmd *exec.Cmd, o Options) (*Process, error) {
	if o.Begin == nil {
		o.Begin = beginHere
	}
	p := &Process{Cmd: cmd, ended: make(chan struct{}), Log: Output{mark: o.Mark, maxBytes: o.Most}}
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
			close(p.ended)
		}
	}()
	return p, <-started
}

// beginHere starts a program in this network.
func beginHere(cmd *exec.Cmd) error {
	// With DieWithUs, the kernel kills the program when this thread ends. The thread therefore
	// stays locked to this goroutine, which waits for the program.
	runtime.LockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = DieWithUs()
	}
	return cmd.Start()
}

// StartPeer starts a program that prints a mark and its address, and waits until the program is
// ready. The program is killed when the test ends.
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

// Ready waits until the program prints its address, and sets URL. It returns an error if the
// program ends before that, or does not print the address within Patience. A program that
// is late is killed.
func (p *Process) Ready() error {
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case p.URL = <-p.Log.Ready():
		return nil
	case <-p.ended:
		p.Kill()
		return errors.Join(p.err, fmt.Errorf("%s ended before it was ready\n%s", p, &p.Log))
	case <-late.C:
		p.Kill()
		return fmt.Errorf("%s did not get ready:\n%s", p, &p.Log)
	}
}

// Listens waits until the program accepts connections at an address. It returns an error if the
// program ends before that.
func (p *Process) Listens(addr string) error {
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return errors.Join(p.err, fmt.Errorf("%s ended before it was ready\n%s", p, &p.Log))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop sends SIGTERM to the program, waits until the program has ended, and returns the result
// of Cmd.Wait. After an earlier Stop or Kill, it does nothing and returns nil.
func (p *Process) Stop() (err error) {
	p.once.Do(func() {
		_ = p.Cmd.Process.Signal(syscall.SIGTERM) // fails if the program has ended
		late := time.AfterFunc(Patience, func() { _ = p.Cmd.Process.Kill() })
		defer late.Stop()
		err = p.Wait()
	})
	return err
}

// End stops the program. It fails the test if the program does not exit with status 0. A
// program with the race detector exits with another status if there was a data race.
func (p *Process) End(tb TB) {
	if err := p.Stop(); err != nil {
		tb.Errorf("%s ended with %v:\n%s", p, err, &p.Log)
	}
}

// Kill kills the program with SIGKILL, and returns when the program has ended. After an
// earlier Stop or Kill, it does nothing.
func (p *Process) Kill() {
	p.once.Do(func() {
		_ = p.Cmd.Process.Kill() // fails if the program has ended
		<-p.ended
	})
}

// Gone returns a channel that is closed when the program has ended.
func (p *Process) Gone() <-chan struct{} { return p.ended }

// Wait waits until the program has ended, and returns the result of Cmd.Wait.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// String returns the program's name.
func (p *Process) String() string { return filepath.Base(p.Cmd.Path) }

// Run runs a program until it ends, and returns its standard output. It fails the test if the
// program fails.
func Run(tb TB, cmd *exec.Cmd) []byte {
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v\n%.4000s\n%.4000s", cmd, err, out, &complaints)
	}
	return out
}

// Succeed runs a program in a folder. If the program fails, the error contains its output.
func Succeed(cmd *exec.Cmd, dir string) error {
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%.4000s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

// Memory returns the size in a line of /proc/<pid>/status, such as VmRSS, in KiB.
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
