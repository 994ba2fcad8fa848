package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// TestSecretIsTyped checks that a value which a person types is not shown, and is written only
// after the person confirms.
func TestSecretIsTyped(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	person, program := testbed.Terminal(t)
	cmd := testbed.Command(t, testbed.Program(t, "./infra/local/secret"), "-name", "shop", "-set", "token")
	cmd.Env = testbed.Environment(k.env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	testbed.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var shown strings.Builder
	awaits := func(mark string) {
		t.Helper()
		piece := make([]byte, 4096)
		for !strings.Contains(shown.String(), mark) {
			shown.Write(piece[:testbed.Must(person.Read(piece))])
		}
	}
	awaits("(not shown): ")
	testbed.AwaitHidden(t, program)
	testbed.Must(person.WriteString("typed-by-a-person\n"))
	awaits("[y/N] ")
	testbed.Must(person.WriteString("y\n"))
	awaits("FacilitatorSecretArn=arn:aws:")
	if err := <-ended; err != nil || strings.Contains(shown.String(), "typed-by") || !testbed.Echoes(t, program) {
		t.Errorf("%v; the screen shows\n%s", err, &shown)
	}
	if got, _ := k.readSecret("shop"); !cmp.Equal(got, map[string]any{"token": "typed-by-a-person"}) {
		t.Errorf("the secret holds %v", got)
	}
}
