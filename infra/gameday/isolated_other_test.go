//go:build !linux

package gameday

import (
	"errors"
	"testing"
)

func isolated() (int, error) { return 0, errors.New("network namespaces are Linux's") }

func TestGameDay(t *testing.T) { t.Skip(noNamespace) }
