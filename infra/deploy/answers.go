package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	// askTimeout is above the time that a cold function may take for its probes.
	askTimeout = 35 * time.Second
	// maxAnswer is above the size of every document.
	maxAnswer = 4 << 20
	// facilitatorCheck is the part of /ready that says whether anything is sold.
	facilitatorCheck = "facilitator"
)

// answers are what a deployment says of itself.
type answers struct {
	origin string
	// offers are what is asked for each operation, by whoever sells it.
	offers map[string]x402.Requirements
	// payees are those of the manifest, which another function has.
	payees []string
	// version is that of the API's description.
	version string
	// settles is how /ready finds the facilitator.
	settles check
}

// check is a part of /ready.
type check struct {
	Status  string `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ask asks a deployment for what the operations of a release cost, and to whom that is paid.
func ask(ctx context.Context, client *http.Client, origin string, c code) (answers, error) {
	a := answers{origin: origin, offers: map[string]x402.Requirements{}}
	var faults []error
	read := func(path string, to any, statuses ...int) {
		if err := a.read(ctx, client, path, to, statuses); err != nil {
			faults = append(faults, err)
		}
	}
	for _, op := range c.Operations {
		var required x402.PaymentRequired
		read(op.Example, &required, http.StatusPaymentRequired)
		if len(required.Accepts) > 0 {
			a.offers[op.Slug] = required.Accepts[0]
		}
	}
	var manifest struct {
		Endpoints []struct {
			PayTo string `json:"payTo"`
		} `json:"endpoints"`
	}
	read(catalog.PathManifest, &manifest, http.StatusOK)
	for _, e := range manifest.Endpoints {
		a.payees = append(a.payees, e.PayTo)
	}
	var description struct {
		Info struct {
			Version string `json:"version"`
		} `json:"info"`
	}
	read(catalog.PathOpenAPI, &description, http.StatusOK)
	a.version = description.Info.Version
	var ready struct {
		Checks map[string]check `json:"checks"`
	}
	read(catalog.PathReady, &ready, http.StatusOK, http.StatusServiceUnavailable)
	a.settles = ready.Checks[facilitatorCheck]
	return a, errors.Join(faults...)
}

// read reads the JSON at a path, whose status must be one of some.
func (a answers) read(ctx context.Context, client *http.Client, path string, to any, statuses []int) error {
	where, _, _ := strings.Cut(path, "?")
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, http.MethodGet, strings.TrimSuffix(a.origin, "/")+path, nil)
	if err != nil {
		return fmt.Errorf("%s: %s", where, printable.Text(err.Error()))
	}
	r.Header.Set("Accept", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("%s: %s", where, printable.Text(err.Error()))
	}
	defer res.Body.Close()
	expected := false
	for _, s := range statuses {
		expected = expected || s == res.StatusCode
	}
	if !expected {
		return fmt.Errorf("%s answers %d", where, res.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(to); err != nil {
		return fmt.Errorf("%s answers %d, and not as this service does: %s", where, res.StatusCode, printable.Text(err.Error()))
	}
	return nil
}
