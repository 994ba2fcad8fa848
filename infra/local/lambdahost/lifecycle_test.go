//go:build unix

package lambdahost_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

// alive says whether a process exists and is no zombie.
func alive(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && procState(pid) != "Z"
}

// procState is the state letter of a process in /proc, empty when there is none.
func procState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text), ") ")
	state, _, _ := strings.Cut(after, " ")
	return state
}

// eventually asks again and again: the kernel stops and reaps in its own time.
func eventually(cond func() bool) bool {
	for end := time.Now().Add(ample); time.Now().Before(end); runtime.Gosched() {
		if cond() {
			return true
		}
	}
	return false
}

func TestFrozenBetweenInvocations(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads process states from /proc, which only Linux has")
	}
	idle := make(chan lambdahost.Process, 1)
	h := newHost(t, func(c *lambdahost.Config) { c.OnIdle = func(p lambdahost.Process) { idle <- p } })
	for range 3 {
		child, err := strconv.Atoi(get(h, "/child").Body.String())
		if err != nil {
			t.Fatal(err)
		}
		p := <-idle
		for _, pid := range []int{p.PID, child} {
			if !eventually(func() bool { return procState(pid) == "T" }) {
				t.Errorf("process %d is in state %s", pid, procState(pid))
			}
		}
	}
	if s := h.Stats("E"); s.Spawned != 1 {
		t.Errorf("a frozen process was not thawed and used again: %+v", s)
	}
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads process states from /proc, which only Linux has")
	}
	var pids []int
	g := newGate(t)
	h := newHost(t, func(c *lambdahost.Config) {
		c.OnSpawn = func(p lambdahost.Process) { pids = append(pids, p.PID) }
	})
	child, err := strconv.Atoi(get(h, "/child").Body.String())
	if err != nil {
		t.Fatal(err)
	}
	busy := make(chan int)
	go func() { busy <- get(h, "/wait?url="+g.URL).Code }() // in the same process
	<-g.arrived
	h.Close()
	if code := <-busy; code != 500 {
		t.Errorf("the event under way was answered %d", code)
	}
	for _, pid := range append(pids, child) {
		if !eventually(func() bool { return !alive(pid) }) {
			t.Errorf("process %d is still there", pid)
		}
	}
	if _, err := h.Invoke(t.Context(), "E", []byte(`{}`)); !errors.Is(err, lambdahost.ErrClosed) {
		t.Errorf("Invoke after Close: %v", err)
	}
	h.Close() // twice is fine
}
