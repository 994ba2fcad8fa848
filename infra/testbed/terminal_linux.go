package testbed

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Terminal opens a pseudo-terminal. It returns the end at which a person types and reads, and
// the end that a program uses. It skips the test if the machine has no pseudo-terminals.
func Terminal(tb testing.TB) (person, program *os.File) {
	tb.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("needs a pseudo-terminal: %v", err)
	}
	tb.Cleanup(func() { _ = person.Close() })
	var locked, number int32
	ioctl(tb, person, syscall.TIOCSPTLCK, unsafe.Pointer(&locked)) //nolint:gosec // ioctl takes a pointer
	ioctl(tb, person, syscall.TIOCGPTN, unsafe.Pointer(&number))   //nolint:gosec // ioctl takes a pointer
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("needs a pseudo-terminal: %v", err)
	}
	tb.Cleanup(func() { _ = program.Close() })
	return person, program
}

// Echoes reports whether a terminal shows what is typed.
func Echoes(tb testing.TB, terminal *os.File) bool {
	tb.Helper()
	var state syscall.Termios
	ioctl(tb, terminal, syscall.TCGETS, unsafe.Pointer(&state)) //nolint:gosec // ioctl takes a pointer
	return state.Lflag&syscall.ECHO != 0
}

// AwaitHidden waits until a terminal does not show what is typed.
func AwaitHidden(tb testing.TB, terminal *os.File) {
	tb.Helper()
	for end := time.Now().Add(Patience); Echoes(tb, terminal); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal("the echo was not turned off")
		}
	}
}

func ioctl(tb testing.TB, f *os.File, request uintptr, arg unsafe.Pointer) {
	tb.Helper()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		tb.Fatalf("ioctl %x: %v", request, errno)
	}
}
