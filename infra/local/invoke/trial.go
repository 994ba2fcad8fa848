package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// runWithPlayMoney runs the program "function", which is in the folder of this program, and
// gives it what it needs to sell. Unless the environment names a facilitator, runWithPlayMoney
// serves one for play money. Unless the environment names a DynamoDB endpoint, it serves a
// ledger in memory. No other program has to run, so runWithPlayMoney also works in a
// container. There are no rate or concurrency limits, and no chain is queried.
func runWithPlayMoney(ctx context.Context, getenv func(string) string) error {
	c, err := boot.ParseLocal(getenv)
	if err != nil {
		return err
	}
	money, err := x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: c.Terms, Now: time.Now})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", &table{})
	for _, path := range []string{"/supported", "/verify", "/settle"} {
		mux.Handle(path, money)
	}
	server := http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }() // until this process ends
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f := exec.CommandContext(ctx, filepath.Join(filepath.Dir(self), "function"))
	f.Stdin = os.Stdin
	f.Stdout = os.Stdout
	f.Stderr = os.Stderr
	f.Env = os.Environ()
	here := "http://" + l.Addr().String()
	for name, value := range map[string]string{"FACILITATOR_URL": here, varEndpoint: here} {
		if getenv(name) == "" {
			f.Env = append(f.Env, name+"="+value)
		}
	}
	f.Env = append(f.Env, "RPC_URL=none", "RATE_LIMIT_PER_MINUTE=0", "CONCURRENCY_SINGLE=0", "CONCURRENCY_BUNDLE=0")
	return f.Run()
}

// table implements the part of DynamoDB that the ledger needs if there are no rate or
// concurrency limits: items by their key, and the two conditions that a write can have
// (package dynamo). Queries return nothing, because no item is older than the process.
type table struct {
	mu    sync.Mutex
	items map[string]map[string]json.RawMessage // items by their key, pk
}

// maxCall is DynamoDB's limit for a request, in bytes.
const maxCall = 1 << 20

func (t *table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Key, Item                 map[string]json.RawMessage
		ConditionExpression       string
		ExpressionAttributeValues map[string]json.RawMessage
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCall))
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil {
		writeError(w, "SerializationException", err.Error(), nil)
		return
	}
	_, call, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	t.mu.Lock()
	defer t.mu.Unlock()
	switch call {
	case "GetItem":
		writeJSON(w, map[string]any{"Item": t.items[string(q.Key["pk"])]})
	case "PutItem":
		key := string(q.Item["pk"])
		old := t.items[key]
		read, conditional := q.ExpressionAttributeValues[":read"]
		if conditional && string(old["version"]) != string(read) || strings.HasPrefix(q.ConditionExpression, "attribute_not_exists") && old != nil {
			writeError(w, "ConditionalCheckFailedException", "The conditional request failed", old)
			return
		}
		if t.items == nil {
			t.items = map[string]map[string]json.RawMessage{}
		}
		t.items[key] = q.Item
		writeJSON(w, struct{}{})
	case "Query":
		writeJSON(w, map[string]any{"Items": []any{}, "Count": 0, "ScannedCount": 0})
	default:
		writeError(w, "UnknownOperationException", call, nil)
	}
}

func writeJSON(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) } // an error means that the Lambda function that reads this reply has ended

func writeError(w http.ResponseWriter, kind, message string, old map[string]json.RawMessage) {
	w.WriteHeader(http.StatusBadRequest)
	writeJSON(w, map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + kind, "message": message, "Item": old})
}
