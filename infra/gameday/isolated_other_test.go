//go:build !linux

package gameday

import "testing"

func TestGameDay(t *testing.T) { t.Skip("network namespaces are Linux's") }
