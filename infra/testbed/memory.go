package testbed

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Memory is a line of what the kernel says about the memory of a process, such as
// VmRSS, in KiB.
func Memory(tb testing.TB, pid int, line string) (kib int) {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\n"+line+":")
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		tb.Fatalf("the status of process %d has no %s: %v", pid, line, err)
	}
	return kib
}
