package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// runShop sells a handler that answers as the ping does, as any program can, on a ledger
// in a file. Like the ping it has no cap, and what a client may do is not limited.
func runShop(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	ledgerFile := flags.String("ledger", "", "the ledger's file")
	facilitator := flags.String("facilitator", "", "URL of the facilitator")
	check(flags.Parse(arguments))
	ledger := must(file.Open(*ledgerFile))
	defer func() { check(ledger.Close()) }()
	seller := must(x402http.New(x402http.Config{
		PayTo: payTo, Facilitator: *facilitator, Ledger: ledger, PerMinute: -1, Concurrent: -1, Name: catalog.Service,
		Front: x402http.Front{Log: slog.New(slog.NewJSONHandler(os.Stdout, nil))},
	}))
	mux := http.NewServeMux()
	seller.Handle(mux, "GET "+catalog.Ping().Path, "0.001", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	listener := must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	fmt.Printf("ready on http://%s\n", listener.Addr())
	_ = server.Serve(listener)
	return nil
}

// shop starts it.
func (s site) shop(ledgerFile string) *server {
	cmd := exec.CommandContext(s.ctx, must(os.Executable()), "shop", "-ledger", ledgerFile, "-facilitator", s.facilitator)
	return start("ready on ", cmd)
}
