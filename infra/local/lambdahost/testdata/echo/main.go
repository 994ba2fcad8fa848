// The function that lambdahost is tested with: an HTTP handler behind
// package boot like the real ones, and raw events that do what no real one does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/hostfacts/hostfacts/pkg/boot"
)

func main() {
	if len(os.Args) > 1 { // the child of /child
		block()
	}
	switch os.Getenv("INIT") {
	case "exit":
		os.Exit(3)
	case "hang":
		block()
	}
	web := boot.NewEventHandler(routes(), nil)
	lambda.Start(func(ctx context.Context, event json.RawMessage) (any, error) {
		var direct struct{ Do string }
		if json.Unmarshal(event, &direct) == nil && direct.Do != "" {
			return raw(direct.Do)
		}
		return web(ctx, event)
	})
}

// raw is what a direct event asks for.
func raw(do string) (any, error) {
	switch do {
	case "fail":
		return nil, errors.New("as asked")
	case "panic":
		panic("as asked")
	case "exit":
		os.Exit(4)
	case "big":
		return strings.Repeat("x", 7<<20), nil
	case "pid":
		return os.Getpid(), nil
	}
	// Anything else is answered as it is, to try the gateway with.
	return json.RawMessage(do), nil
}

func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(os.Environ())
	})
	mux.HandleFunc("/context", func(w http.ResponseWriter, r *http.Request) {
		lc, _ := lambdacontext.FromContext(r.Context())
		deadline, _ := r.Context().Deadline()
		_ = json.NewEncoder(w).Encode(map[string]any{
			"id": lc.AwsRequestID, "arn": lc.InvokedFunctionArn, "deadline": deadline.UnixMilli(),
		})
	})
	mux.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { block() })
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(5) })
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("as asked") })
	mux.HandleFunc("/wait", wait)
	mux.HandleFunc("/child", child)
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.Header().Set("Transfer-Encoding", "chunked")
		w.Header().Set("Upgrade", "h2c")
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte{0xff, 0xfe})
	})
	return mux
}

// echo answers what the handler has seen.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "path": r.URL.Path, "query": r.URL.RawQuery, "host": r.Host,
		"remote": r.RemoteAddr, "headers": r.Header, "body": body, "pid": os.Getpid(),
		"request_id": boot.RequestID(r.Context()),
	})
}

// wait asks the test, and answers when the test does.
func wait(w http.ResponseWriter, r *http.Request) {
	resp, err := http.Get(r.URL.Query().Get("url"))
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = resp.Body.Close()
	fmt.Fprint(w, os.Getpid())
}

// child starts a process of the same group that never ends by itself.
func child(w http.ResponseWriter, _ *http.Request) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, "child")
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Fprint(w, cmd.Process.Pid)
}

// block never returns and takes no heed of any deadline. Waiting for a signal
// keeps the runtime from calling it a deadlock.
func block() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
}
