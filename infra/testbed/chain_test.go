package testbed

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// TestContracts checks that the committed sources of the contracts compile to the committed
// code.
func TestContracts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs in make verify: needs Node for the Solidity compiler")
	}
	dir := PeerFolder("chain")
	cmd := Command(t, Node(t, dir), filepath.Join("..", "contracts", "compile.cjs"))
	cmd.Dir = dir
	if out := programs.Run(t, cmd); !bytes.Equal(contracts, out) {
		t.Error("contracts.json is not up to date: cd testdata/chain && node ../contracts/compile.cjs > ../contracts/contracts.json")
	}
}
