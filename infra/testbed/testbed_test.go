package testbed

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A program that ends before it is ready, one that ends badly when it is told to,
// and one that is killed.
func TestProcess(t *testing.T) {
	t.Parallel()
	launch := func(script string) *Process {
		p, err := Launch(exec.Command("sh", "-c", script), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	early := launch("echo it cannot >&2; exit 3")
	if err := early.Ready(); err == nil || !strings.Contains(err.Error(), "it cannot") || early.Stop() != nil {
		t.Errorf("a program that ended is ready: %v", err)
	}
	const serves = "trap 'exit 4' TERM; echo It is ready on http://127.0.0.1:1; while :; do sleep 0.1; done"
	for how, end := range map[string]func(*Process) error{
		"stop": (*Process).Stop,
		"kill": func(p *Process) error { p.Kill(); return p.Stop() },
	} {
		p := launch(serves)
		if err := p.Ready(); err != nil || p.URL != "http://127.0.0.1:1" {
			t.Errorf("%s: %q, %v", how, p.URL, err)
		}
		if err := end(p); (err == nil) == (how == "stop") {
			t.Errorf("%s: it ended with 4, and the error is %v", how, err)
		}
		<-p.Gone()
	}
}

// recorder is a testing.TB that counts complaints, and whose test ends when it is
// told to.
type recorder struct {
	testing.TB
	complaints int
	cleanups   []func()
}

func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(string, ...any) { r.complaints++ }
func (r *recorder) Fatal(...any)          { r.complaints++; runtime.Goexit() }

// What a busy machine made fail is played again, but never what is grave.
func TestFairly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		fault             any
		took              time.Duration
		plays, complaints int
	}{
		{name: "late", fault: "late", took: time.Minute, plays: 2},
		{name: "in time", fault: "wrong", plays: 1, complaints: 1},
		{name: "grave", fault: Grave("paid twice"), took: time.Minute, plays: 1, complaints: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, plays := &recorder{TB: t}, 0
			var all sync.WaitGroup
			all.Go(func() {
				Fairly(r, time.Second, func(tb testing.TB, p *Pace) {
					p.Took(c.took)
					if plays++; plays == 1 {
						tb.Error(c.fault)
					}
				})
			})
			if all.Wait(); plays != c.plays || r.complaints != c.complaints {
				t.Errorf("%d plays and %d complaints", plays, r.complaints)
			}
		})
	}
}

// A connection that is not closed by the side that made it is a fault of the test.
func TestConnectionLeftOpen(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	w := NewOrigins(r)
	w.Accept("a.test.com", "93.184.216.34", func(net.Conn) {})
	conn, err := w.dial(Soon(t), "tcp", "93.184.216.34:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, end := range slices.Backward(r.cleanups) {
		end()
	}
	if r.complaints != 1 {
		t.Errorf("%d complaints", r.complaints)
	}
}

// Of those that need something at once, one installs, and what is outdated or was cut
// short is not taken for what is pinned.
func TestInstall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(path, text string) error {
		full := filepath.Join(dir, path)
		return errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, []byte(text), 0o600))
	}
	const pinned, installed = "package-lock.json", "node_modules/.package-lock.json"
	lock := func(dynalite, anvil string) string { return `{"packages":{"":{},` + dynalite + anvil + `}}` }
	const dynalite, anvil = `"dynalite":{"version":"4.0.0"}`, `,"anvil":{"version":"1.7.1","optional":true}`
	if err := write(pinned, lock(dynalite, anvil)); err != nil {
		t.Fatal(err)
	}
	for name, present := range map[string]string{
		"cut short": "", "one missing": "{}", "outdated": lock(`"dynalite":{"version":"3.2.2"}`, anvil),
		"optional, outdated": lock(dynalite, `,"anvil":{"version":"1.0.0"}`),
	} {
		err := Install(dir, func() error { return missingPackages(dir) }, func() error { return write(installed, present) })
		if err == nil {
			t.Errorf("%s: taken for complete", name)
		}
	}
	var all sync.WaitGroup
	made := 0
	for range 20 {
		all.Go(func() {
			err := Install(dir, func() error { return missingPackages(dir) }, func() error {
				made++
				return write(installed, lock(dynalite, "")) // on another platform
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	if all.Wait(); made != 1 {
		t.Errorf("installed %d times", made)
	}
}
