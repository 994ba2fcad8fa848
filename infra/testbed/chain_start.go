package testbed

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// What the node pretends to be: Base, with its BaseUSDC.
const (
	BaseChainID = 8453
	BaseNetwork = "eip155:8453"
	BaseUSDC    = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
)

// anvilPackage holds the node's binary. It is for one platform and npm leaves
// it out on others, so there an anvil in PATH is taken.
const anvilPackage = "@foundry-rs/anvil-linux-amd64"

// Chain is a running node. Its methods end the test when the node does not do
// as it is told.
type Chain struct {
	*Process
	client   *http.Client
	automine bool
}

// StartChain runs a new node until the test ends, with the token at BaseUSDC and
// a block for every transaction. It installs the node first where it is
// missing and npm is not, skips the test where that cannot be done and under
// -short, and fails it where the node is there and does not work.
func StartChain(t testing.TB) *Chain {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in make verify: needs the Ethereum node anvil")
	}
	dir := peerFolder(t, "chain")
	Node(t, dir)
	anvil := filepath.Join(dir, "node_modules", filepath.FromSlash(anvilPackage), "bin", "anvil")
	if _, err := os.Stat(anvil); err != nil {
		anvil = Find(t, "the Ethereum node anvil, which npm does not have for this platform", "anvil")
	}
	cmd := exec.Command(anvil, "--host", "127.0.0.1", "--port", "0", "--chain-id", strconv.Itoa(BaseChainID))
	home := t.TempDir() // it keeps old states in files
	cmd.Dir, cmd.Env = home, []string{"HOME=" + home}
	n := &Chain{Process: startPeer(t, cmd, "Listening on "), client: &http.Client{Timeout: time.Minute}, automine: true}
	n.URL = "http://" + n.URL
	n.plant(t)
	return n
}

// Call makes one JSON-RPC call and returns its result.
func (n *Chain) Call(t testing.TB, method string, params ...any) json.RawMessage {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": append([]any{}, params...)})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := n.client.Post(n.URL, "application/json", bytes.NewReader(body))
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
