package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	// askTimeout is how long the program waits for an answer. A function that has just started
	// may need some time for the probes of /ready, but less than this.
	askTimeout = 35 * time.Second
	// maxAnswer is how many bytes of an answer are read at most. Every document of the service
	// is smaller.
	maxAnswer = 4 << 20
	// facilitatorCheck is the name of the check in /ready whose result shows whether the
	// deployment is selling (see answers.sellingValue).
	facilitatorCheck = "facilitator"
)

// answers are what a deployment reports about itself.
type answers struct {
	origin string
	// offers are the payment terms of the operations (such as price and payee), by slug. Each
	// comes from the function that sells the operation.
	offers map[string]x402.Requirements
	// toolTerms has the payment terms that one operation states when it is called as an MCP tool.
	// They come from the function that serves the tools.
	toolTerms x402.Requirements
	// payees are the payees that the manifest names, one for each endpoint. The manifest comes
	// from a function that sells nothing.
	payees []string
	// version is the version that the API's description states.
	version string
	// facilitator is the result of the check facilitatorCheck in /ready.
	facilitator checkResult
}

// checkResult is the result of one of the checks in /ready.
type checkResult struct {
	Status  string `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// fetchAnswers asks a deployment about itself. The code c says which operations to ask about.
// If some requests fail, fetchAnswers returns an error together with the answers to the other
// requests.
func fetchAnswers(ctx context.Context, client *http.Client, origin string, c code) (answers, error) {
	a := answers{origin: origin, offers: map[string]x402.Requirements{}}
	var faults []error
	read := func(path string, to any, statuses ...int) {
		if err := a.fetch(ctx, client, path, to, statuses); err != nil {
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
	if err := a.fetchToolTerms(ctx, client, c); err != nil {
		faults = append(faults, err)
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
		Checks map[string]checkResult `json:"checks"`
	}
	read(catalog.PathReady, &ready, http.StatusOK, http.StatusServiceUnavailable)
	a.facilitator = ready.Checks[facilitatorCheck]
	return a, errors.Join(faults...)
}

// fetchToolTerms calls an operation of c as an MCP tool, without a payment. The reply asks for
// a payment, and fetchToolTerms records the payment terms in a.toolTerms. If every operation
// of c has required parameters, fetchToolTerms does nothing.
func (a *answers) fetchToolTerms(ctx context.Context, client *http.Client, c code) error {
	op, found := c.withoutParameters()
	if !found {
		return nil
	}
	request := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, op.Tool)
	var reply struct {
		Result struct {
			Required x402.PaymentRequired `json:"structuredContent"`
		} `json:"result"`
	}
	err := a.exchange(ctx, client, http.MethodPost, catalog.PathMCP, strings.NewReader(request), &reply, []int{http.StatusOK})
	if len(reply.Result.Required.Accepts) > 0 {
		a.toolTerms = reply.Result.Required.Accepts[0]
	}
	return err
}

// fetch sends a GET request for a path, and decodes the JSON of the answer. It returns an
// error if the answer's status is not one of statuses.
func (a answers) fetch(ctx context.Context, client *http.Client, path string, to any, statuses []int) error {
	return a.exchange(ctx, client, http.MethodGet, path, nil, to, statuses)
}

// exchange sends a request, and decodes the JSON of the answer. It returns an error if the
// answer's status is not one of statuses.
func (a answers) exchange(ctx context.Context, client *http.Client, method, path string, body io.Reader, to any, statuses []int) error {
	where, _, _ := strings.Cut(path, "?")
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, method, strings.TrimSuffix(a.origin, "/")+path, body)
	if err != nil {
		return fmt.Errorf("%s: %s", where, untrusted.Text(err.Error()))
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("%s: %s", where, untrusted.Text(err.Error()))
	}
	defer res.Body.Close()
	if !slices.Contains(statuses, res.StatusCode) {
		return fmt.Errorf("%s answers %d", where, res.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(to); err != nil {
		return fmt.Errorf("%s answers %d, and not as this service does: %s", where, res.StatusCode, untrusted.Text(err.Error()))
	}
	return nil
}
