package testbed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What the node pretends to be: Base, with its BaseUSDC.
const (
	BaseChainID = 8453
	BaseNetwork = "eip155:8453"
	BaseUSDC    = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
)

const (
	callTimeout = time.Minute
)

// Chain is a running node. Its methods end the test when the node does not do
// as it is told.
type Chain struct {
	URL string // http://127.0.0.1:port

	kill     func()
	client   *http.Client
	automine bool
}

// StartChain runs a node of its own until the test ends, with the token at BaseUSDC and
// a block for every transaction. It installs the node first where it is
// missing and npm is not, skips the test where that cannot be done and under
// -short, and fails it where the node is there and does not work.
func StartChain(t testing.TB) *Chain {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in make verify: needs the Ethereum node anvil")
	}
	anvil, err := installChain(t.Context(), peerFolder(t, "chain"))
	if err != nil {
		t.Skipf("needs the Ethereum node anvil, which cannot be installed: %v", err)
	}
	n := &Chain{client: &http.Client{Timeout: callTimeout, Transport: &http.Transport{}}, automine: true}
	port, err := n.launch(t, anvil)
	if err != nil {
		t.Fatalf("start the Ethereum node: %v", err)
	}
	n.URL = "http://127.0.0.1:" + strconv.Itoa(port)
	n.plant(t)
	return n
}

// Kill ends the node before the test ends.
func (n *Chain) Kill() { n.kill() }

// launch starts the node and returns its port once it listens.
func (n *Chain) launch(t testing.TB, anvil string) (int, error) {
	cmd := exec.CommandContext(context.Background(), anvil, "--host", "127.0.0.1", "--port", "0", "--chain-id", strconv.Itoa(BaseChainID))
	home := t.TempDir() // it keeps old states in files
	cmd.Dir, cmd.Env = home, []string{"HOME=" + home}
	cmd.SysProcAttr = DieWithUs()
	printed, out := io.Pipe()
	cmd.Stdout, cmd.Stderr = out, out
	ended := make(chan struct{})
	if err := start(cmd, ended); err != nil {
		return 0, err
	}
	n.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-ended
		n.client.CloseIdleConnections()
	})
	t.Cleanup(n.kill)
	late := time.AfterFunc(Patience, n.kill)
	defer late.Stop()
	go func() {
		<-ended
		out.Close()
	}()
	var seen []string
	for lines := bufio.NewScanner(printed); lines.Scan(); seen = append(seen, lines.Text()) {
		if _, port, ok := strings.Cut(lines.Text(), "Listening on 127.0.0.1:"); ok {
			go func() { _, _ = io.Copy(io.Discard, printed) }() // it prints every call
			return strconv.Atoi(port)
		}
	}
	return 0, fmt.Errorf("it ended, or did not listen in time: %.400q", seen)
}

// start starts a process, and closes ended when it is gone. The thread that
// starts it lives as long as it does and does nothing else: DieWithUs is
// about the thread, and threads of a test end, as those of its other processes
// do.
func start(cmd *exec.Cmd, ended chan<- struct{}) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // "signal: killed" is what was asked for
		}
	}()
	return <-started
}

// Call makes one JSON-RPC call and returns its result.
func (n *Chain) Call(t testing.TB, method string, params ...any) json.RawMessage {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": append([]any{}, params...)})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := n.client.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	defer resp.Body.Close()
	var reply struct{ Result, Error json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil || reply.Error != nil {
		t.Fatalf("%s: %v %s", method, err, reply.Error)
	}
	return reply.Result
}
