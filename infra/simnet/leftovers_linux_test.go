package simnet

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// maxResident is design §12's memory of an instance after 1,000 paid requests.
// The runner also holds the ledger's file and the play-money facilitator.
const maxResident = 64 << 10 // KiB

// maxPeak is what it may hold for a moment, with 48 hostile peers at once that
// each send as much as they are let.
const maxPeak = 2 * maxResident

// holding is what a process holds.
type holding struct{ resident, peak, descriptors int }

func holds(t *testing.T, pid int) holding {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return holding{resident: memory(t, pid, "VmRSS:"), peak: memory(t, pid, "VmHWM:"), descriptors: len(open)}
}

// nothingLeft looks at a runner that has answered everything, every kind of
// hostile peer included, and compares with what it held before: memory,
// descriptors, sockets and goroutines. It ends the runner, whose last words are
// the stacks of its goroutines.
func nothingLeft(t *testing.T, r *runner, before holding) {
	t.Helper()
	after := holds(t, r.process.Cmd.Process.Pid)
	t.Logf("the runner holds %d KiB and %d descriptors; before the first request %d KiB and %d; at most it held %d KiB",
		after.resident, after.descriptors, before.resident, before.descriptors, after.peak)
	if after.resident > maxResident || after.peak > maxPeak {
		t.Errorf("the runner holds %d KiB and held %d, want %d and %d at most", after.resident, after.peak, maxResident, maxPeak)
	}
	// The runner's own connections to its facilitator may stay open.
	const kept = 16
	limit := time.Now().Add(patience)
	for after.descriptors > before.descriptors+kept {
		if time.Now().After(limit) {
			t.Fatalf("%d descriptors were left behind", after.descriptors-before.descriptors)
		}
		<-time.After(100 * time.Millisecond)
		after = holds(t, r.process.Cmd.Process.Pid)
	}
	for {
		open := outgoing(t)
		if len(open) == 0 {
			break
		}
		if time.Now().After(limit) { // a peer's last segment may be under way
			t.Fatalf("sockets were left behind: %v", open)
		}
		<-time.After(100 * time.Millisecond)
	}
	stacks := r.lastWords(t)
	if !strings.Contains(stacks, "main.serve") || !strings.Contains(stacks, "net/http.(*Server).Serve") {
		t.Fatalf("there are not all stacks in the runner's last words: %.500s", stacks)
	}
	for g := range strings.SplitSeq(stacks, "\n\n") {
		for _, pkg := range []string{"pkg/lookup", "pkg/origin", "pkg/guard"} {
			if strings.Contains(g, pkg) {
				t.Errorf("a goroutine was left behind: %.1000s", g)
			}
		}
	}
}

// memory is a line of what the kernel says about a process's memory, in KiB.
func memory(t *testing.T, pid int, line string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(b)) {
		if f := strings.Fields(text); len(f) == 3 && f[0] == line {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s", line)
	return 0
}

// outgoing are the sockets of the namespace that are connected to port 443 or
// 53 of anybody, as the kernel lists them, but for those that only wait for
// stray segments (TIME_WAIT, which belongs to no process).
func outgoing(t *testing.T) []string {
	t.Helper()
	const timeWait = "06"
	var open []string
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile("/proc/self/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line) // number, local, remote, state
			if len(f) < 4 || f[3] == timeWait {
				continue
			}
			if _, port, _ := strings.Cut(f[2], ":"); port == "01BB" || port == "0035" {
				open = append(open, file+" "+f[2]+" "+f[3])
			}
		}
	}
	return open
}

// lastWords ends the runner as Go programs end at SIGQUIT, and returns what it
// wrote then.
func (r *runner) lastWords(t *testing.T) string {
	t.Helper()
	before := len(r.log.String())
	if err := r.process.Cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	r.quit = true
	select {
	case <-r.process.Gone():
	case <-time.After(patience):
		t.Fatal("the runner does not end")
	}
	return r.log.String()[before:]
}
