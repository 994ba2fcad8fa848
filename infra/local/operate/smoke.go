package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
)

const (
	// smokeTimeout is above the time that a cold function may take for its probes.
	smokeTimeout = 30 * time.Second
	// maxReady is how much of the answer is read, in bytes.
	maxReady = 64 << 10
)

// runSmoke reads /ready of a deployment and prints what each part says: the first
// half of "make smoke", which then pays ping. It returns an error unless the service
// is ready and the table of LEDGER_TABLE, if that is set, has its protections.
func runSmoke(ctx context.Context, args []string, getenv func(string) string, notes io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: make smoke ORIGIN=https://api.example.com [KEY_FILE=...]")
	}
	u, err := url.Parse(args[0])
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("ORIGIN=%s is no origin such as https://api.example.com", printable.Quote(args[0], printable.Max))
	}
	c, err := boot.ReadLocal(getenv)
	if err == nil {
		err = checkReady(ctx, u, notes)
	}
	switch {
	case err != nil:
		return err
	case c.Ledger.Name != "":
		return checkTable(ctx, c.Ledger)
	}
	fmt.Fprintln(notes, "The ledger's table was not looked at: LEDGER_TABLE names none.")
	return nil
}

// check is a part of /ready.
type check struct {
	Status, Code, Message string
}

// checkReady prints what /ready says, and returns an error unless the service is ready.
func checkReady(ctx context.Context, origin *url.URL, notes io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, smokeTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, origin.JoinPath(catalog.PathReady).String(), nil) //nolint:gosec // the operator names the origin
	if err != nil {
		return err
	}
	q.Header.Set("Accept", "application/json")
	res, err := http.DefaultClient.Do(q) //nolint:gosec // the same
	if err != nil {
		return fmt.Errorf("ask %s: %s", catalog.PathReady, printable.Text(err.Error()))
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReady))
	var said struct{ Checks map[string]check }
	if err == nil {
		err = json.Unmarshal(body, &said)
	}
	if err != nil {
		return fmt.Errorf("%s answers %d, and not as this service does: %s", catalog.PathReady, res.StatusCode, printable.Text(err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(said.Checks)) {
		c := said.Checks[name]
		fmt.Fprintf(notes, "%-16s %s\n", printable.Text(name), printable.Text(strings.TrimSpace(c.Status+" "+c.Message)))
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s answers %d", catalog.PathReady, res.StatusCode)
	}
	return nil
}
