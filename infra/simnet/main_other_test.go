//go:build !linux

package simnet

import "testing"

func TestSimnet(t *testing.T) { t.Skip("network namespaces are Linux's") }
