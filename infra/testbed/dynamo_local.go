package testbed

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mavenPlugin copies what the pom.xml names, with all that this needs.
const mavenPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

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
	addr := FreeAddr(t) // it takes no port 0
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(java, "-Xmx256m", "-Djava.library.path=lib", "-cp", "lib/*",
		"com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-inMemory", "-disableTelemetry", "-port", port)
	cmd.Dir = dir
	startPeer(t, cmd, "Started ServerConnector")
	return Dynamo{URL: "http://" + addr}
}

// fetchLocal puts the pinned version in place, unless it is there.
func fetchLocal(ctx context.Context, dir string) error {
	list, lib := filepath.Join(dir, "pom.xml"), filepath.Join(dir, "lib")
	stamp := filepath.Join(lib, "installed.xml")
	return Install(dir, func() error { return current(list, stamp) }, func() error {
		maven, err := exec.LookPath("mvn")
		if err == nil {
			err = os.RemoveAll(lib)
		}
		if err == nil {
			err = succeed(exec.CommandContext(ctx, maven, "-q", "-B", mavenPlugin, "-DoutputDirectory=lib"), dir)
		}
		if err != nil {
			return err
		}
		return copied(list, stamp)
	})
}

// FreeAddr is an address of 127.0.0.1 to listen on. Another process may take it first.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
