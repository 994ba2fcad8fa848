package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

const (
	// smokeTimeout leaves a new process enough time for all its probes.
	smokeTimeout = 30 * time.Second
	// maxReady is how much of the answer of /ready is read, in bytes.
	maxReady  = 64 << 10
	pathReady = "/ready"
)

// smoke reads /ready of a deployment and prints the state of each part. It is the first half
// of "make smoke", which then pays for a ping. It returns an error if the service is not
// ready. If LEDGER_TABLE names a table, smoke also returns an error if the table lacks one of
// the features that protections lists.
func smoke(ctx context.Context, o order) error {
	u, err := originOf(o.args[0])
	if err != nil {
		return err
	}
	c, err := boot.ParseLocal(o.getenv)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, smokeTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(limited, http.MethodGet, u.JoinPath(pathReady).String(), nil) //nolint:gosec // the operator chooses the origin
	if err != nil {
		return err
	}
	q.Header.Set("Accept", "application/json")
	res, err := http.DefaultClient.Do(q) //nolint:gosec // the operator chooses the origin
	if err != nil {
		return fmt.Errorf("ask %s: %s", pathReady, untrusted.Text(err.Error()))
	}
	defer res.Body.Close()
	var said struct {
		Checks map[string]struct{ Status, Message string }
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxReady)).Decode(&said); err != nil {
		return fmt.Errorf("%s answers %d, and not as this service does: %s", pathReady, res.StatusCode, untrusted.Text(err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(said.Checks)) {
		c := said.Checks[name]
		fmt.Fprintf(o.notes, "%-16s %s\n", untrusted.Text(name), untrusted.Text(strings.TrimSpace(c.Status+" "+c.Message)))
	}
	switch {
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("not ready: %s answers %d", pathReady, res.StatusCode)
	case c.Ledger.Name != "":
		return o.checkTable(ctx, c.Ledger)
	}
	fmt.Fprintln(o.notes, "The ledger's table was not checked: LEDGER_TABLE is not set.")
	return nil
}

// originOf parses an origin that was typed on the command line.
func originOf(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !isOrigin(u) {
		return nil, fmt.Errorf("ORIGIN=%s is not an origin such as https://api.example.com", untrusted.Quote(text, untrusted.Max))
	}
	return u, nil
}

// isOrigin reports whether a URL consists of a scheme and a host only.
func isOrigin(u *url.URL) bool {
	if u.Scheme != "https" && u.Scheme != "http" {
		return false
	}
	if u.Host == "" || u.User != nil || u.RawQuery != "" {
		return false
	}
	return u.Path == "" || u.Path == "/"
}
