package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Answer is one answer of the service. Path may have a query.
type Answer struct {
	Method, Path string
	Status       int
	Header       http.Header
	Body         []byte
}

// Check says what about an answer is not as described, nil when nothing is.
//
// A declared status must have one of its media types, that one's schema, and
// the headers that are required. Any other status must be an error with the
// shared body, on a path and for a method that are not described as well; a
// browser's 404 of a path that is not described can be a page. HEAD is GET
// without a body. Preflights and 304 are HTTP's own; they are empty.
func (d *OpenAPI) Check(a Answer) error {
	err := d.check(a)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %.200s answered %d, and that is not what the OpenAPI description says:\n%w\n%.700s", a.Method, a.Path, a.Status, err, a.Body)
}

func (d *OpenAPI) check(a Answer) error {
	path, _, _ := strings.Cut(a.Path, "?")
	op, described := d.operations[path]
	r, declared := op.Responses[a.Status]
	visit := a.Method == http.MethodGet || a.Method == http.MethodHead
	mediaType, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch {
	case a.Method == http.MethodOptions && a.Status == http.StatusNoContent, a.Status == http.StatusNotModified:
		return empty(a.Body)
	case declared && visit:
	case !described && visit && a.Status == http.StatusNotFound && mediaType == "text/html" && !strings.HasPrefix(a.Path, "/.well-known/"):
		return nil
	case a.Status >= http.StatusBadRequest:
		r = d.undeclared
	default:
		return fmt.Errorf("this is not declared (the path is described: %v), and it is not an error", described)
	}
	var faults []error
	for name, want := range r.Headers {
		if err := want.header(a.Header.Values(name)); err != nil {
			faults = append(faults, fmt.Errorf("%s %w", name, err))
		}
	}
	return errors.Join(append(faults, d.checkBody(a, mediaType, op, r))...)
}

func empty(body []byte) error {
	if len(body) > 0 {
		return errors.New("it has a body")
	}
	return nil
}

func (p *part) header(values []string) error {
	if len(values) == 0 && !p.Required {
		return nil
	}
	if len(values) != 1 {
		return fmt.Errorf("is there %d times", len(values))
	}
	var value any = values[0]
	if p.Schema.Type == "integer" {
		if !json.Valid([]byte(values[0])) {
			return fmt.Errorf("%q is not a number", values[0])
		}
		value = json.Number(values[0])
	}
	return p.compiled.Validate(value)
}

const jsonType = "application/json"

func (d *OpenAPI) checkBody(a Answer, mediaType string, op operation, r response) error {
	p, ok := r.Content[mediaType]
	switch {
	case !ok:
		return fmt.Errorf("Content-Type %q is not declared", a.Header.Get("Content-Type"))
	case a.Method == http.MethodHead:
		return empty(a.Body)
	case !utf8.Valid(a.Body):
		return errors.New("the body is not UTF-8")
	}
	var value any = string(a.Body)
	if mediaType == jsonType {
		var err error
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(a.Body)); err != nil {
			return err
		}
	}
	if err := p.compiled.Validate(value); err != nil {
		return err
	}
	switch {
	case p.Schema.Ref == sharedError:
		return d.checkCode(a, op)
	case a.Status == http.StatusOK && len(op.codes) > 0:
		return checkChildren(a.Body)
	}
	return nil
}

// checkCode holds an error to the operation's list. What the list does not say
// (charged is null there) the body may; and an answer that is owed is in the
// end no longer retryable. docs_url leads to the place of the documentation that is
// about the code.
func (d *OpenAPI) checkCode(a Answer, op operation) error {
	var body struct {
		Error struct {
			Code      string
			Charged   *bool
			Retryable bool
		}
		DocsURL string `json:"docs_url"`
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return err
	}
	e := body.Error
	listed, ok := op.codes[e.Code]
	if !ok {
		listed, ok = d.outside[e.Code]
	}
	charged := e.Charged != nil && *e.Charged
	link, err := url.Parse(body.DocsURL)
	switch {
	case !ok:
		return fmt.Errorf("the operation does not list %s", e.Code)
	case listed.Status != a.Status:
		return fmt.Errorf("%s is listed with %d", e.Code, listed.Status)
	case listed.Charged != nil && (e.Charged == nil || charged != *listed.Charged):
		return fmt.Errorf("%s is listed with charged %v", e.Code, *listed.Charged)
	case listed.Retryable != nil && e.Retryable != *listed.Retryable && (!*listed.Retryable || !charged):
		return fmt.Errorf("%s is listed with retryable %v", e.Code, *listed.Retryable)
	case err != nil || link.Path != catalog.PathDocs || link.Fragment != catalog.ErrorAnchor(fault.Code(e.Code)) || !d.anchors[link.Fragment]:
		return fmt.Errorf("docs_url is %s, which is not a place about %s", body.DocsURL, e.Code)
	}
	return nil
}

// checkChildren wants the code of a child that failed to be one that the
// child's own operation lists for a lookup.
func checkChildren(body []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	for name, op := range map[string]catalog.Operation{"dns": catalog.DNS(), "ssl": catalog.SSLCheck(), "whois": catalog.Whois(), "headers": catalog.Headers()} {
		var child struct {
			Error *struct{ Code fault.Code }
		}
		// A field of that name that is not a child (headers of a headers result
		// is an object of texts) has no error, or one of another type.
		if raw, ok := fields[name]; !ok || json.Unmarshal(raw, &child) != nil || child.Error == nil {
			continue
		}
		if child.Error.Code == fault.Overloaded || !slices.Contains(op.Errors, child.Error.Code) {
			return fmt.Errorf("%s failed with %s, which is not in the list of %s", name, child.Error.Code, op.Slug)
		}
	}
	return nil
}
