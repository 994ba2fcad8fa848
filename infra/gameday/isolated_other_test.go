//go:build !linux

package gameday

import "testing"

func TestGameDay(t *testing.T) { t.Skip(noNamespace) }
