package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mavenPlugin copies what the pom.xml names, with all that this needs.
const mavenPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// stamp is a copy of the pom.xml beside what was copied for it.
const stamp = "installed.xml"

// StartDynamoLocal runs DynamoDB Local, Amazon's own, in memory, until the test ends. It
// needs Java and fetches the program by Maven once; without them, and under -short,
// it skips the test.
func StartDynamoLocal(t testing.TB) Dynamo {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in make verify: needs Java for DynamoDB Local")
	}
	java, dir := Find(t, "Java for DynamoDB Local", "java"), peerFolder(t, "dynamolocal")
	if err := fetchLocal(t.Context(), dir); err != nil {
		t.Skipf("needs DynamoDB Local, which cannot be fetched: %v", err)
	}
	for range 3 { // somebody else may take the port first
		if url, ok := launchLocal(t, java, dir); ok {
			return Dynamo{URL: url}
		}
	}
	t.Fatal("DynamoDB Local does not start")
	return Dynamo{}
}

// fetchLocal puts the pinned version in place, unless it is there.
func fetchLocal(ctx context.Context, dir string) error {
	pom, err := os.ReadFile(filepath.Join(dir, "pom.xml"))
	if err != nil {
		return err
	}
	lib := filepath.Join(dir, "lib")
	missing := func() error {
		if have, err := os.ReadFile(filepath.Join(lib, stamp)); err != nil || string(have) != string(pom) {
			return errors.New("it is missing, or of another version")
		}
		return nil
	}
	return Install(dir, missing, func() error {
		maven, err := exec.LookPath("mvn")
		if err != nil {
			return err
		}
		if err := os.RemoveAll(lib); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, maven, "-q", "-B", mavenPlugin, "-DoutputDirectory=lib")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mvn: %w: %.400s", err, strings.TrimSpace(string(out)))
		}
		return os.WriteFile(filepath.Join(lib, stamp), pom, 0o600)
	})
}

// launchLocal starts the server on a port that was free, because it takes no port 0,
// and waits until it says that it listens. One that cannot have its port says nothing
// and stays. The shell ends it when its standard input ends: with us, however we end.
func launchLocal(t testing.TB, java, dir string) (url string, ok bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command("sh", "-c", `"$@" 2>&1 & server=$!; cat >/dev/null; kill $server`, "sh",
		java, "-Xmx256m", "-Djava.library.path=lib", "-cp", "lib/*", "com.amazonaws.services.dynamodbv2.local.main.ServerRunner",
		"-inMemory", "-disableTelemetry", "-port", port)
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // the status of kill
	})
	listens := make(chan bool, 1)
	go func() {
		defer close(listens)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "Started ServerConnector") {
				listens <- true
				break
			}
		}
		_, _ = io.Copy(io.Discard, out) // it must not wait for a reader
	}()
	select {
	case ok = <-listens:
	case <-time.After(Patience):
	}
	return "http://" + addr, ok
}
