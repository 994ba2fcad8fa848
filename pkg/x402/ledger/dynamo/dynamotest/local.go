package dynamotest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/filelock"
)

// mavenPlugin copies what the pom.xml names, with all that this needs.
const mavenPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// stamp is a copy of the pom.xml beside what was copied for it.
const stamp = "installed.xml"

// StartLocal runs DynamoDB Local, Amazon's own, in memory, until the test ends. It
// needs Java and fetches the program by Maven once; without them, and under -short,
// it skips the test.
func StartLocal(t testing.TB) Server {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in make verify: needs Java for DynamoDB Local")
	}
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("needs Java for DynamoDB Local: java is not in PATH")
	}
	dynalite, err := packageDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filepath.Dir(dynalite), "dynamolocal")
	if err := fetchLocal(t.Context(), dir); err != nil {
		t.Skipf("needs DynamoDB Local, which cannot be fetched: %v", err)
	}
	for range 3 { // somebody else may take the port first
		if url, ok := launchLocal(t, java, dir); ok {
			return Server{URL: url}
		}
	}
	t.Fatal("DynamoDB Local does not start")
	return Server{}
}

// fetchLocal puts the pinned version in place, unless it is there.
func fetchLocal(ctx context.Context, dir string) error {
	pom, err := os.ReadFile(filepath.Join(dir, "pom.xml"))
	if err != nil {
		return err
	}
	current := func() bool {
		have, err := os.ReadFile(filepath.Join(dir, "lib", stamp))
		return err == nil && string(have) == string(pom)
	}
	if current() {
		return nil
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return err
	}
	unlock, err := filelock.Lock(filepath.Join(os.TempDir(), fmt.Sprintf("dynamotest-%x.lock", sha256.Sum256([]byte(dir)))))
	if err != nil {
		return err
	}
	defer unlock()
	if current() {
		return nil // by whom we waited for
	}
	if err := os.RemoveAll(filepath.Join(dir, "lib")); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", mavenPlugin, "-DoutputDirectory=lib")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("mvn: %w: %.400s", err, strings.TrimSpace(string(out))), os.RemoveAll(filepath.Join(dir, "lib")))
	}
	return os.WriteFile(filepath.Join(dir, "lib", stamp), pom, 0o600)
}

// launchLocal starts the server on a port that was free, and waits until it answers.
// The shell ends it when its standard input ends: with us, however we end.
func launchLocal(t testing.TB, java, dir string) (url string, ok bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command("sh", "-c", `"$@" >/dev/null 2>&1 & server=$!; cat >/dev/null; kill $server`, "sh",
		java, "-Xmx256m", "-Djava.library.path=lib", "-cp", "lib/*", "com.amazonaws.services.dynamodbv2.local.main.ServerRunner",
		"-inMemory", "-disableTelemetry", "-port", port)
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
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
	url = "http://" + addr
	for begun := time.Now(); time.Since(begun) < startTimeout; {
		if res, err := http.Get(url); err == nil { //nolint:gosec // on this machine; 400: it wants a signed request
			_ = res.Body.Close()
			return url, res.Header.Get("Server") != "" || res.StatusCode == http.StatusBadRequest
		}
		time.Sleep(100 * time.Millisecond) // how often to look
	}
	return "", false
}
