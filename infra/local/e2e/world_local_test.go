package e2e

import (
	"bytes"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func startRunner(tb testing.TB, l *lab) opener {
	localBinary(tb)
	return func(tb testing.TB, s setup) *deployment { return openLocal(tb, l, s) }
}

// openLocal runs the built local runner over a ledger file of its own.
func openLocal(tb testing.TB, l *lab, s setup) *deployment {
	tb.Helper()
	p := startLocal(tb, l, s, filepath.Join(tb.TempDir(), "ledger.db"))
	d := &deployment{base: p.url, origin: p.url, log: p.out.String}
	tb.Cleanup(func() {
		p.stop(tb)
		d.seen.check(tb, p.out.String())
	})
	return d
}

// runner is the program of a local world.
func (s setup) runner(tb testing.TB) string {
	if s.crowd {
		return plainBinary(tb)
	}
	return localBinary(tb)
}

// localProcess is a running local runner.
type localProcess struct {
	url  string
	cmd  *exec.Cmd
	out  transcript
	once sync.Once
	gone chan error // what Wait said
}

// startLocal starts the local runner and waits until it says that it is ready.
// At the end of the test it is stopped, and must have ended well.
func startLocal(tb testing.TB, l *lab, s setup, ledgerFile string) *localProcess {
	tb.Helper()
	p := &localProcess{cmd: exec.Command(s.runner(tb)), gone: make(chan error, 1)}
	p.cmd.Dir = filepath.Dir(ledgerFile)
	p.cmd.Env = []string{"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + ledgerFile}
	for name, value := range s.environment() {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	ready := &readyLine{to: &p.out, url: make(chan string, 1)}
	p.cmd.Stdout, p.cmd.Stderr = ready, &p.out
	p.cmd.SysProcAttr = dieWithUs()
	if err := p.start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.stop(tb)
		l.checkLog(tb, p.out.String())
	})
	select {
	case p.url = <-ready.url:
	case <-time.After(patience):
	}
	if p.url == "" {
		tb.Fatalf("the local runner did not get ready: %s", p.out.String())
	}
	return p
}

// start starts the process from a thread that lives as long as it does: the
// kernel's dieWithUs is about the thread.
func (p *localProcess) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.gone <- p.cmd.Wait()
		}
	}()
	return <-started
}

// readyLine looks for the address that the runner prints when it is ready.
type readyLine struct {
	to    io.Writer
	line  []byte
	found bool
	url   chan string
}

func (r *readyLine) Write(b []byte) (int, error) {
	if !r.found {
		r.line = append(r.line, b...)
		for {
			line, rest, whole := bytes.Cut(r.line, []byte("\n"))
			if !whole {
				break
			}
			r.line = rest
			if _, url, ok := strings.Cut(string(line), " is ready on "); ok {
				r.url <- strings.TrimSpace(url)
				r.found = true
				break
			}
		}
	}
	return r.to.Write(b)
}

// stop ends the process politely; it must exit with 0, which it does not when
// the race detector has seen something.
func (p *localProcess) stop(tb testing.TB) {
	p.once.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
		defer late.Stop()
		if err := <-p.gone; err != nil {
			tb.Errorf("the local runner ended with: %v\n%s", err, p.out.String())
		}
	})
}

// kill is kill -9; it returns when the process is gone.
func (p *localProcess) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		<-p.gone
	})
}
