package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// TestTerminalDoesNotEcho types a key after the program has turned the echo off, and checks that
// the screen does not show it.
func TestTerminalDoesNotEcho(t *testing.T) {
	person, program := testbed.Terminal(t)
	var out, notes bytes.Buffer
	cmd := command(t, "sign-origin", "-origin", vectorOrigin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, &out, &notes
	testbed.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	testbed.AwaitHidden(t, program)
	testbed.Must(person.WriteString(vectorKey + "\n"))
	if err := <-ended; err != nil {
		t.Fatalf("%v: %s", err, notes.String())
	}
	if out.String() != vectorProof || !strings.Contains(notes.String(), "not shown") || !testbed.Echoes(t, program) {
		t.Errorf("printed %q and %q, and the terminal echoes: %t", &out, &notes, testbed.Echoes(t, program))
	}
	// This line marks the end of the text to read from the screen.
	testbed.Must(program.WriteString("end of the screen\n"))
	screen, shown := make([]byte, 4096), ""
	for !strings.Contains(shown, "end of the screen") {
		shown += string(screen[:testbed.Must(person.Read(screen))])
	}
	if strings.Contains(shown, vectorKey[:16]) {
		t.Errorf("the key is on the screen: %q", shown)
	}
}
