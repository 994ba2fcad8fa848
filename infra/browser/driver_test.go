package browser

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// driver is the Node process that drives the one Chromium.
type driver struct {
	in    io.WriteCloser
	lines chan string // what it answers; closed at its end
	log   testbed.Output
}

// outcome is what a scenario answers.
type outcome struct {
	Failed string
	Payer  string          // address of the wallet that paid
	Answer json.RawMessage // the JSON on show
}

func newDriver(t *testing.T) *driver {
	t.Helper()
	node, chromium := tools(t)
	args := []string{"driver.mjs", chromium}
	if *updateScreenshots {
		args = append(args, pictures)
	}
	cmd := exec.Command(node, args...)
	d := &driver{lines: make(chan string, 1)}
	cmd.Stderr = &d.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if d.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.lines)
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 4<<20)
		for scan.Scan() {
			d.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		d.in.Close() // it closes the browser and ends
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		for range d.lines {
			t.Error("the driver said something more")
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the driver ended with %v:\n%s", err, &d.log)
		}
	})
	t.Logf("Chromium: %s", d.next(t))
	return d
}

// next is the driver's next line.
func (d *driver) next(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-d.lines:
		if !ok {
			t.Fatalf("the driver ended:\n%s", &d.log)
		}
		return line
	case <-time.After(3 * patience):
		t.Fatalf("the driver does not answer:\n%s", &d.log)
		return ""
	}
}

// run plays a scenario and returns what came of it.
func (d *driver) run(t *testing.T, origin, name, path string, args map[string]any) outcome {
	t.Helper()
	line, err := json.Marshal(map[string]any{"name": name, "origin": origin, "path": path, "args": args})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		t.Fatalf("tell the driver: %v\n%s", err, &d.log)
	}
	var o outcome
	if answer := d.next(t); json.Unmarshal([]byte(answer), &o) != nil {
		t.Fatalf("the driver says %q", answer)
	}
	if o.Failed != "" {
		t.Fatal(strings.TrimSpace(o.Failed))
	}
	return o
}
