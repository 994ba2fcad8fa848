package chaintest

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The kernel ends the node with the thread that started it, so that must not be
// a thread of the test's, which can end at any time.
func TestOutlivesThread(t *testing.T) {
	t.Parallel()
	thread := make(chan int, 1)
	started := make(chan *Node, 1)
	go func() {
		defer close(started)
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		thread <- syscall.Gettid()
		started <- Start(t)
	}()
	id := <-thread
	n := <-started
	if n == nil || id == os.Getpid() {
		return // Start has said why, or it was the first thread, which never ends
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startTimeout); ; <-tick.C {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(id))
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("thread %d has not ended (%v)", id, err)
		}
	}
	n.Now(t)
}
