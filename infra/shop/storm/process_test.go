package storm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a process of the shop. It is started again whenever it ends.
type process struct {
	url    string
	socket *os.File
	log    *os.File
	done   chan struct{} // closed when the process has ended and is not started again

	mu             sync.Mutex
	settings       settings
	command        *exec.Cmd
	stopped        bool
	kills          int
	unexpectedEnds []string
}

// startProcess starts a process of the shop, and stops it at the end of the test.
func startProcess(t *testing.T, s settings, log *os.File) *process {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{url: "http://" + listener.Addr().String(), socket: socket, log: log, done: make(chan struct{}), settings: s}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	go p.keepUp()
	t.Cleanup(func() {
		p.stop()
		socket.Close()
		listener.Close()
	})
	return p
}

// start starts the process, unless it was stopped.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	raw, err := json.Marshal(p.settings)
	if err != nil {
		return err
	}
	p.command = exec.Command(os.Args[0])
	p.command.Env = append(os.Environ(), settingsVar+"="+string(raw))
	p.command.Stderr = p.log
	p.command.ExtraFiles = []*os.File{p.socket}
	if _, err := p.command.StdinPipe(); err != nil {
		return err
	}
	return p.command.Start()
}

// keepUp restarts the process whenever it ends, until it is stopped.
func (p *process) keepUp() {
	defer close(p.done)
	for {
		p.mu.Lock()
		command := p.command
		p.mu.Unlock()
		p.recordEnd(command.Wait())
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped {
			return
		}
		if err := p.start(); err != nil {
			p.recordUnexpectedEnd(fmt.Sprint("it did not start again: ", err))
			return
		}
	}
}

// recordEnd records an unexpected end of the process, such as an end that the race detector
// has caused.
func (p *process) recordEnd(err error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		if ok && (status.Signal() == syscall.SIGKILL || status.ExitStatus() == endedOnPurpose) {
			return
		}
	}
	p.recordUnexpectedEnd(fmt.Sprint("it ended by itself: ", err))
}

func (p *process) recordUnexpectedEnd(wrong string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unexpectedEnds = append(p.unexpectedEnds, wrong)
}

// kill kills the process. keepUp then starts it again.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.command.Process.Kill() // it may have ended by itself
	p.kills++
}

// killOften kills the process again and again, with random pauses, until stormOver is closed.
func (p *process) killOften(rng *mathrand.Rand, mean time.Duration, stormOver <-chan struct{}) {
	for {
		pause := max(time.Second/2, time.Duration(rng.ExpFloat64()*float64(mean)))
		select {
		case <-stormOver:
			return
		case <-time.After(pause):
			p.kill()
		}
	}
}

// restartWithoutFaults restarts the process without faults. It returns how often the process
// was killed before that.
func (p *process) restartWithoutFaults() (kills int) {
	p.mu.Lock()
	p.settings.Faults, p.settings.Die = false, 0
	kills = p.kills
	p.mu.Unlock()
	p.kill()
	return kills
}

// stop kills the process and does not start it again.
func (p *process) stop() {
	p.mu.Lock()
	p.stopped = true
	_ = p.command.Process.Kill() // it may have ended by itself
	p.mu.Unlock()
	<-p.done
}
