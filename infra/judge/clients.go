package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

// stockClient is an unmodified third-party client. A program of infra/clients uses the client
// to buy in a loop.
type stockClient struct {
	name         string
	isTool       bool     // whether the client calls tools over the Model Context Protocol
	program      string   // the path of that program below infra/clients/testdata
	installCheck []string // a command that fails if the client is not installed
}

// loopPause is how long a program of infra/clients pauses between two calls, in milliseconds.
const loopPause = 1000

// stockClients returns the clients for which infra/clients has programs. node and python are
// the interpreters for these programs.
func stockClients(node, python string) []stockClient {
	npm := func(name string) []string {
		return []string{node, "-e", "import('" + name + "').catch(() => process.exit(1))"}
	}
	pypi := func(name string) []string { return []string{python, "-c", "import x402, eth_account, " + name} }
	return []stockClient{
		{
			name:         "@x402/fetch",
			program:      "stock/fetch.mjs",
			installCheck: npm("@x402/fetch"),
		},
		{
			name:         "@x402/axios",
			program:      "stock/axios.mjs",
			installCheck: npm("@x402/axios"),
		},
		{
			name:         "httpx",
			program:      "stock/use_httpx.py",
			installCheck: pypi("httpx"),
		},
		{
			name:         "requests",
			program:      "stock/use_requests.py",
			installCheck: pypi("requests"),
		},
		{
			name:         "mcp-sdk-1",
			isTool:       true,
			program:      "mcp/legacy.mjs",
			installCheck: npm("@modelcontextprotocol/sdk/client/index.js"),
		},
		{
			name:         "mcp-sdk-2",
			isTool:       true,
			program:      "mcp/modern.mjs",
			installCheck: npm("@modelcontextprotocol/client"),
		},
	}
}

// installedClients returns the installed clients as payers for the judge. It prints to notes
// which clients are not installed. If no client is installed, it returns an error.
func installedClients(ctx context.Context, folder, python string, notes io.Writer) ([]judge.Outsider, error) {
	programs, err := filepath.Abs(filepath.Join(folder, "testdata"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(programs); err != nil {
		return nil, fmt.Errorf("-clients must be the folder infra/clients of this repository: %w", err)
	}
	var all []judge.Outsider
	for _, c := range stockClients("node", python) {
		check := exec.CommandContext(ctx, c.installCheck[0], c.installCheck[1:]...)
		check.Dir = programs
		if err := check.Run(); err != nil {
			fmt.Fprintf(notes, "%s is not installed, and does not buy (see make node-packages, and %s)\n", c.name, filepath.Join(programs, "requirements.txt"))
			continue
		}
		one := clientProgram{runner: c.installCheck[0], path: filepath.Join(programs, c.program)}
		buy := one.buy
		if c.isTool {
			buy = one.callTool
		}
		all = append(all, judge.Outsider{Way: judge.Way(c.name), Tool: c.isTool, Buy: buy})
	}
	if len(all) == 0 {
		return nil, errors.New("no client of -clients is installed")
	}
	return all, nil
}

// clientProgram is a program of infra/clients, with the interpreter that runs it.
type clientProgram struct{ runner, path string }

// buy runs the program, which buys over HTTP. The program reads the order o from standard
// input.
func (p clientProgram) buy(ctx context.Context, o judge.Order) (answered bool, err error) {
	order := map[string]any{
		"id":      "judge",
		"url":     o.Origin + o.Goods.Path,
		"network": o.Network,
		"key":     "0x" + o.Key,
		"headers": map[string]string{},
		"report":  nil,
		"calls":   o.Tries,
		"timeout": 0,
		"once":    true,
	}
	orders, err := json.Marshal(map[string]any{
		"pause":     loopPause,
		"purchases": []any{order},
	})
	if err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, p.runner, p.path)
	cmd.Stdin = bytes.NewReader(append(orders, '\n'))
	out, err := p.output(cmd)
	if err != nil {
		return false, err
	}
	var result struct {
		Answer struct{ Status int }
	}
	_, line, _ := bytes.Cut(out, []byte("\n")) // the first line says that the program is ready
	if err := json.Unmarshal(line, &result); err != nil {
		return false, fmt.Errorf("%s printed no result: %w", p.path, err)
	}
	return result.Answer.Status == http.StatusOK, nil
}

// callTool runs the program, which calls a tool. The program gives up early, so callTool runs
// it until the tool answers, but at most o.Tries times.
func (p clientProgram) callTool(ctx context.Context, o judge.Order) (answered bool, err error) {
	for range o.Tries {
		var isError bool
		isError, err = p.callOnce(ctx, o)
		if err == nil && !isError {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
	return false, err
}

// callOnce runs the program once. It reports whether the tool's result was an error or
// missing.
func (p clientProgram) callOnce(ctx context.Context, o judge.Order) (isError bool, err error) {
	cmd := exec.CommandContext(ctx, p.runner, p.path, o.Origin+o.Goods.ToolPath, o.Goods.Tool, o.Goods.Args, "host")
	cmd.Env = append(os.Environ(), "PRIVATE_KEY=0x"+o.Key)
	out, err := p.output(cmd)
	if err != nil {
		return false, err
	}
	var result struct {
		Paid struct{ IsError bool }
	}
	printed := json.Unmarshal(out, &result) == nil // the program prints no result if its call got no answer
	return !printed || result.Paid.IsError, nil
}

// output runs a program and returns what it prints to standard output.
func (p clientProgram) output(cmd *exec.Cmd) ([]byte, error) {
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %.300s", filepath.Base(p.path), err, &complaints)
	}
	return out, nil
}
