package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

func ioctl(t *testing.T, f *os.File, request uintptr, arg unsafe.Pointer) {
	t.Helper()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		t.Fatalf("ioctl %x: %v", request, errno)
	}
}

// terminal opens a pseudo-terminal: what a person types into, and what the
// program reads from.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	var locked, number int32
	ioctl(t, person, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	ioctl(t, person, syscall.TIOCGPTN, unsafe.Pointer(&number))
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

func echoes(t *testing.T, terminal *os.File) bool {
	t.Helper()
	var state syscall.Termios
	ioctl(t, terminal, syscall.TCGETS, unsafe.Pointer(&state))
	return state.Lflag&syscall.ECHO != 0
}

// TestTerminalDoesNotEcho types a key once the program has turned the echo off,
// and looks for it on the screen.
func TestTerminalDoesNotEcho(t *testing.T) {
	person, program := terminal(t)
	var out, notes bytes.Buffer
	cmd := command(t, "sign-origin", "-origin", vectorOrigin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, &out, &notes
	testbed.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for end := time.Now().Add(time.Minute); echoes(t, program); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the echo was not turned off within a minute")
		}
	}
	testbed.Must(person.WriteString(vectorKey + "\n"))
	if err := <-ended; err != nil {
		t.Fatalf("%v: %s", err, notes.String())
	}
	if out.String() != vectorProof || !strings.Contains(notes.String(), "not shown") || !echoes(t, program) {
		t.Errorf("printed %q and %q, and the terminal echoes: %t", &out, &notes, echoes(t, program))
	}
	// What is on the screen ends with a line that the test puts there.
	testbed.Must(program.WriteString("end of the screen\n"))
	screen, shown := make([]byte, 4096), ""
	for !strings.Contains(shown, "end of the screen") {
		shown += string(screen[:testbed.Must(person.Read(screen))])
	}
	if strings.Contains(shown, vectorKey[:16]) {
		t.Errorf("the key is on the screen: %q", shown)
	}
}
