package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// figures are what one Go benchmark reports, by unit: ns/op, B/op and its own.
type figures map[string]float64

// goBenchmarks runs benchmarks of a package and returns what each reports.
func goBenchmarks(ctx context.Context, root, pkg, pattern string) (map[string]figures, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-run", "^$", "-bench", pattern, "-benchmem", pkg)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s %s: %w\n%s", pattern, pkg, err, out)
	}
	all, err := parseBenchmarks(out)
	if err == nil && len(all) == 0 {
		err = errors.New("no benchmark has this name")
	}
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s %s: %w", pattern, pkg, err)
	}
	return all, nil
}

// parseBenchmarks reads lines such as "BenchmarkX-2  100  12345 ns/op  3 calls".
func parseBenchmarks(out []byte) (map[string]figures, error) {
	all := map[string]figures{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		f := figures{}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			f[fields[i+1]] = value
		}
		all[name] = f
	}
	return all, nil
}
