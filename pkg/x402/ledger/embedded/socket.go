package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Serve serves the store of an open ledger file until close is called, to this
// user alone. What a service that was killed has left behind is replaced: whoever
// has the file open is the only one that serves it.
func Serve(ctx context.Context, ledgerFile string, s Served) (closeAll func() error, err error) {
	l, err := listen(ctx, SocketPath(ledgerFile))
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	const (
		most  = 10 * time.Second // to send a request
		grace = 5 * time.Second  // for calls that run when the service ends
	)
	server := &http.Server{
		Handler: handler(s), ReadHeaderTimeout: most, ReadTimeout: most, WriteTimeout: listTime + most, IdleTimeout: most, MaxHeaderBytes: 8 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		// Shutdown removes the socket with its listener.
		if err := server.Shutdown(ctx); err != nil {
			server.Close()
		}
		err := <-ended
		_ = os.Remove(filepath.Dir(SocketPath(ledgerFile))) // stays if somebody has put something into it
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}, nil
}

// listen makes the folder and the socket, for this user alone. The folder comes
// first: whatever the socket's own mode is before it is set, nobody else gets
// there.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := private(filepath.Dir(path)); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is in the way of the socket", path)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	at, err := short(path)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", at)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// private makes a folder that only this user can enter. Making one fails for a
// folder of somebody else's, because only its owner can change its mode.
func private(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is in the way of the socket's folder", dir)
	}
	return os.Chmod(dir, 0o700) //nolint:gosec // G302: a folder is entered
}

// short is a path that a socket can have: one that is too long may be short
// enough from the folder that the process is in.
func short(path string) (string, error) {
	if len(path) <= maxPath {
		return path, nil
	}
	here, err := os.Getwd()
	if err == nil {
		if relative, err := filepath.Rel(here, path); err == nil && len(relative) <= maxPath {
			return relative, nil
		}
	}
	return "", fmt.Errorf("embedded: %s is longer than the %d bytes that a socket's path may have: a shorter LEDGER_FILE helps", path, maxPath)
}

func handler(s Served) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q request
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		d.DisallowUnknownFields()
		var p reply
		err := d.Decode(&q)
		if err == nil {
			p, err = q.answer(r.Context(), s)
		}
		if err != nil {
			p = failure(err)
		}
		// Whoever asked may be gone; there is nobody else to tell.
		_ = json.NewEncoder(w).Encode(p)
	})
}
