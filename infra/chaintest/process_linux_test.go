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
	started := make(chan *Node, 1)
	thread := make(chan int, 1)
	go onMortalThread(func() {
		defer close(started)
		thread <- syscall.Gettid()
		started <- Start(t)
	})
	task := "/proc/self/task/" + strconv.Itoa(<-thread)
	n := <-started
	if n == nil {
		return // Start has said why
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startTimeout); ; <-tick.C {
		_, err := os.Stat(task)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("thread %s has not ended (%v)", task, err)
		}
	}
	n.Now(t)
}

// onMortalThread runs f on a thread that ends with it. The process's first
// thread never does: while this goroutine sits on that one, another gets
// another.
func onMortalThread(f func()) {
	runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
	if syscall.Gettid() != os.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		onMortalThread(f)
	}()
	<-done
}
