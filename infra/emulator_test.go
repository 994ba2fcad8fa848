package main

import (
	"bufio"
	"crypto/rand"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// emulator is a running moto: a DynamoDB that can restore a table, in memory.
type emulator struct{ url string }

func startEmulator(t *testing.T) emulator {
	t.Helper()
	cmd := python(t, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
	log := must(cmd.StderrPipe())(t)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	begins := ""
	for lines := bufio.NewScanner(log); lines.Scan(); {
		begins += lines.Text() + "\n"
		if _, url, ok := strings.Cut(lines.Text(), " Running on "); ok {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return emulator{url}
		}
	}
	t.Fatalf("the emulator does not start:\n%s", begins)
	return emulator{}
}

func (e emulator) client() *dynamodb.Client {
	return dynamo.NewClient(testbed.Dynamo{URL: e.url}.Config())
}

// ledger is the ledger in a table of the emulator.
func (e emulator) ledger(table string) *ledger.Ledger {
	return ledger.New(testbed.Dynamo{URL: e.url}.Open(table), time.Now, rand.Text)
}

// pays leaves a payment in a ledger whose answer is owed, and returns its key.
func pays(t *testing.T, l *ledger.Ledger) string {
	t.Helper()
	_, hold, key := claim(t, l, must(x402test.NewWallet(rand.Reader))(t))
	check(t, hold.Settled(t.Context(), ledger.Receipt{Transaction: "0x1"}, false))
	check(t, hold.Release(t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	return key
}

func owes(t *testing.T, l *ledger.Ledger, key string) bool {
	t.Helper()
	r := must(l.Fetch(t.Context(), key))(t)
	return r != nil && r.State == ledger.Settled
}
