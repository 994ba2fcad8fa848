package testbed

import (
	"bytes"
	"cmp"
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
	return launch(cmd, begin, "")
}

// StartPeer starts a program of others until the test ends. Its URL is the text after mark in
// its output, or, if mark is empty, the address that the local runner prints.
func StartPeer(tb testing.TB, cmd *exec.Cmd, mark string) *Process {
	p, err := launch(cmd, nil, mark)
	if err == nil {
		tb.Cleanup(p.Kill)
		err = p.Ready()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func launch(cmd *exec.Cmd, begin func(*exec.Cmd) error, mark string) (*Process, error) {
	p := &Process{Cmd: cmd, gone: make(chan struct{}), Log: Output{mark: mark}}
	cmd.Stdout, cmd.Stderr = &p.Log, &p.Log
	started := make(chan error)
	go func() {
		if begin == nil {
			// dieWithUs depends on the thread that starts the process, which must live as long.
			runtime.LockOSThread()
			cmd.SysProcAttr, begin = cmp.Or(cmd.SysProcAttr, DieWithUs()), (*exec.Cmd).Start
		}
		err := begin(cmd)
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.gone)
		}
	}()
	return p, <-started
}

// Ready waits until the program prints where it is ready. It returns an error if the program
// ends before that or does not print it in time; then the program is killed.
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

// Listens waits until the program accepts connections at an address. It returns an error if the
// program ends before that.
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

// End ends the program politely, unless it was told to end before. The test fails when the
// program does not exit with 0, as it does not when the race detector has seen something.
func (p *Process) End(tb testing.TB) {
	p.once.Do(func() {
		_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		late := time.AfterFunc(Patience, func() { _ = p.Cmd.Process.Kill() })
		defer late.Stop()
		if <-p.gone; p.err != nil {
			tb.Errorf("%s ended with %v:\n%s", p, p.err, &p.Log)
		}
	})
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

// Run runs a program that must succeed, and returns its output.
func Run(tb testing.TB, cmd *exec.Cmd) []byte {
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

// Output keeps what a program prints, and finds the address that the local runner
// prints when it is ready. The zero value is ready to be written to.
type Output struct {
	mark  string // what the address stands behind, if not what the local runner prints
	mu    sync.Mutex
	text  bytes.Buffer
	told  bool
	ready chan string
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if !o.told {
		_, rest, _ := strings.Cut(o.text.String(), cmp.Or(o.mark, " is ready on "))
		if url, _, whole := strings.Cut(rest, "\n"); whole {
			o.told = true
			o.channel() <- strings.TrimSpace(url)
		}
	}
	return len(p), nil
}

// Ready returns a channel that gets the address as soon as it is printed.
func (o *Output) Ready() <-chan string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.channel()
}

func (o *Output) channel() chan string {
	if o.ready == nil {
		o.ready = make(chan string, 1)
	}
	return o.ready
}

// String is what was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Memory returns one of the kernel's figures about the memory of a process, such as VmRSS, in
// KiB.
func Memory(tb testing.TB, pid int, line string) (kib int) {
	status := Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))
	_, rest, _ := strings.Cut(string(status), "\n"+line+":")
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		tb.Fatalf("the status of process %d has no %s: %v", pid, line, err)
	}
	return kib
}

// Until tries until there is no error, or the test has waited for as long as Patience.
func Until(tb testing.TB, what string, try func() error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); ; <-tick.C {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s: %v", what, err)
		}
	}
}

// Crash returns the part of a log that reports a crash or a data race, or an empty text.
func Crash(log string) string {
	for _, bad := range []string{"panic", "DATA RACE", "fatal error", "goroutine "} {
		if at := strings.Index(log, bad); at >= 0 {
			return log[max(at-500, 0):min(at+2000, len(log))]
		}
	}
	return ""
}
