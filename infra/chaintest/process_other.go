//go:build !linux

package chaintest

import "os/exec"

// dieWithParent does nothing here: a test that is killed leaves its node.
func dieWithParent(*exec.Cmd) {}
