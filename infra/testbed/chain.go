package testbed

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

//go:embed testdata/contracts/contracts.json
var contracts []byte

const (
	batchAddress = "0x00000000000000000000000000000000000ba7c4"
	// gas is enough gas for every transaction of the tests. If a transaction did not set its
	// gas, the node would first estimate it by running the transaction, and would refuse a
	// transaction that fails.
	gas = "0x1000000"
)

// Account returns the address of one of the node's ten accounts. They have Ether, and the node
// accepts their transactions without a signature.
func Account(i int) string {
	return [...]string{
		"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		"0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC", "0x90F79bf6EB2c4f870365E785982E1f101E93b906",
		"0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65", "0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc",
		"0x976EA74026E726554dB657fA54763abd0C3a0aa9", "0x14dC79964da2C08b23698B3D3cc7Ca32193d9955",
		"0x23618e81E3f5cdF7f54C3d65f7FBc0aBf5B21E8f", "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720",
	}[i]
}

// thirdParty is the argument of Account for a third party. That account sends the transactions
// that anybody may send.
const thirdParty = 9

// plantContracts puts the code of the test contracts at their addresses.
func (n *Chain) plantContracts(t testing.TB) {
	var artefact struct{ Code map[string]string }
	Check(json.Unmarshal(contracts, &artefact))
	n.Call(t, "anvil_setCode", BaseUSDC, artefact.Code["Token"])
	n.Call(t, "anvil_setCode", batchAddress, artefact.Code["Batch"])
}

// ChainReceipt is the receipt of a transaction.
type ChainReceipt struct {
	Hash    string
	Pending bool // the transaction is in no block yet; Success and Block are not known
	Success bool
	Block   uint64
}

// send sends a transaction, and waits until it is in a block, unless automining is off.
func (n *Chain) send(t testing.TB, from, to string, data []byte) ChainReceipt {
	tx := map[string]string{
		"from": from,
		"to":   to,
		"data": hexBytes(data),
		"gas":  gas,
	}
	if !n.automine {
		hash := decode[string](t, n.Call(t, "eth_sendTransaction", tx))
		return ChainReceipt{Hash: hash, Pending: true}
	}
	return parseReceipt(t, n.Call(t, "eth_sendTransactionSync", tx))
}

// Receipt returns the receipt of a transaction that is in a block.
func (n *Chain) Receipt(t testing.TB, hash string) ChainReceipt {
	return parseReceipt(t, n.Call(t, "eth_getTransactionReceipt", hash))
}

func parseReceipt(t testing.TB, raw json.RawMessage) ChainReceipt {
	r := decode[struct{ TransactionHash, Status, BlockNumber string }](t, raw)
	return ChainReceipt{Hash: r.TransactionHash, Success: r.Status == "0x1", Block: parseNumber(r.BlockNumber)}
}

// mustSend sends a transaction. If the transaction fails, mustSend fails the test.
func (n *Chain) mustSend(t testing.TB, from, to string, data []byte) ChainReceipt {
	r := n.send(t, from, to, data)
	if !r.Pending && !r.Success {
		t.Fatalf("transaction %s failed", r.Hash)
	}
	return r
}

// Mint creates an amount of the token, in atomic units, and gives it to an account.
func (n *Chain) Mint(t testing.TB, to x402.Address, value int64) {
	n.mustSend(t, Account(thirdParty), BaseUSDC, MintCall(to, value))
}

// Balance returns an account's balance of the token, in atomic units.
func (n *Chain) Balance(t testing.TB, holder x402.Address) *big.Int {
	call := map[string]string{"to": BaseUSDC, "data": hexBytes(calldata("balanceOf(address)", holder))}
	text := decode[string](t, n.Call(t, "eth_call", call, "latest"))
	b, ok := new(big.Int).SetString(text, 0)
	if !ok {
		t.Fatal("balance is not a number")
	}
	return b
}

// Pause pauses or resumes the token.
func (n *Chain) Pause(t testing.TB, on bool) {
	call := "unpause()"
	if on {
		call = "pause()"
	}
	n.mustSend(t, Account(thirdParty), BaseUSDC, calldata(call))
}

// SetAutomine turns automining on or off. While it is on, every transaction gets a block at
// once. While it is off, transactions wait for a call of Mine.
func (n *Chain) SetAutomine(t testing.TB, on bool) {
	n.Call(t, "evm_setAutomine", on)
	n.automine = on
}

// SetBlockInterval sets the interval between the timestamps of consecutive blocks. The
// timestamps then do not depend on when the blocks are made. Without an interval, a block has
// the real time, in whole seconds.
func (n *Chain) SetBlockInterval(t testing.TB, d time.Duration) {
	n.Call(t, "anvil_setBlockTimestampInterval", int64(d/time.Second))
}

// Mine makes a number of blocks. Each takes about 5 ms.
func (n *Chain) Mine(t testing.TB, blocks int) {
	n.Call(t, "anvil_mine", fmt.Sprintf("0x%x", blocks))
}

// Now returns the time of the latest block.
func (n *Chain) Now(t testing.TB) time.Time {
	_, at := n.Block(t, "latest")
	return at
}

// Block returns the number and the time of a block. The block is named by a tag such as latest
// or safe, or by its number in hex. A block is safe once 32 blocks have followed it.
func (n *Chain) Block(t testing.TB, which string) (uint64, time.Time) {
	b := decode[struct{ Number, Timestamp string }](t, n.Call(t, "eth_getBlockByNumber", which, false))
	return parseNumber(b.Number), time.Unix(int64(parseNumber(b.Timestamp)), 0)
}

func parseNumber(s string) uint64 {
	return Must(strconv.ParseUint(s, 0, 63))
}

func decode[T any](t testing.TB, raw json.RawMessage) (v T) {
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%.200s: %v", raw, err)
	}
	return v
}

func hexBytes(b []byte) string { return fmt.Sprintf("0x%x", b) }

// The node of a Chain pretends to be a node of Base. Its token is at the address BaseUSDC.
const (
	BaseChainID = 8453
	BaseNetwork = "eip155:8453"
	BaseUSDC    = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
)

// anvilPackage is the npm package that has the node's binary for Linux on amd64.
const anvilPackage = "@foundry-rs/anvil-linux-amd64"

// Chain is a running node. Its methods fail the test if the node fails.
type Chain struct {
	*programs.Process
	client   *http.Client
	automine bool
}

// StartChain runs a new node until the test ends. The token is at BaseUSDC, and automining is
// on (see SetAutomine). If the node is missing, StartChain installs it with npm. StartChain
// skips the test under -short, or if the node cannot be installed. It fails the test if the
// node is installed but does not work.
func StartChain(t testing.TB) *Chain {
	if testing.Short() {
		t.Skip("runs in make verify: needs the Ethereum node anvil")
	}
	dir := PeerFolder("chain")
	Node(t, dir)
	anvil := filepath.Join(dir, "node_modules", filepath.FromSlash(anvilPackage), "bin", "anvil")
	if _, err := os.Stat(anvil); err != nil {
		anvil = Find(t, "the Ethereum node anvil, which npm does not have for this platform", "anvil")
	}
	cmd := exec.Command(anvil, "--host", "127.0.0.1", "--port", "0", "--chain-id", strconv.Itoa(BaseChainID))
	home := t.TempDir() // the node keeps old states in files in this folder
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home}
	n := &Chain{
		Process:  programs.StartPeer(t, cmd, "Listening on "),
		client:   &http.Client{Timeout: time.Minute},
		automine: true,
	}
	n.URL = "http://" + n.URL
	n.plantContracts(t)
	return n
}

// Call makes one JSON-RPC call and returns its result.
func (n *Chain) Call(t testing.TB, method string, params ...any) json.RawMessage {
	body := Must(json.Marshal(map[string]any{
		"jsonrpc": "2.0",
		"id":      1,
		"method":  method,
		"params":  append([]any{}, params...),
	}))
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
