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
	"github.com/hostfacts/hostfacts/pkg/fault"
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
	if a.Method == http.MethodOptions && a.Status == http.StatusNoContent || a.Status == http.StatusNotModified {
		return empty(a.Body)
	}
	op, described := d.operations[withoutQuery(a.Path)]
	r, declared := op.responses[a.Status]
	if a.Method != http.MethodGet && a.Method != http.MethodHead {
		declared = false
	}
	switch {
	case declared:
		return errors.Join(r.checkHeaders(a.Header), d.checkDeclared(a, op, r))
	case !described && a.Status == http.StatusNotFound && isPage(a):
		return nil
	case a.Status >= http.StatusBadRequest:
		return d.checkUndeclared(a, op)
	case described:
		return errors.New("the status is not declared, and it is not an error")
	}
	return errors.New("the path is not described, and this is not an error")
}

// isPage says whether an answer is a page for a browser.
func isPage(a Answer) bool {
	mediaType, err := mediaTypeOf(a.Header)
	visit := a.Method == http.MethodGet || a.Method == http.MethodHead
	return err == nil && mediaType == "text/html" && visit && !strings.HasPrefix(a.Path, "/.well-known/")
}

func empty(body []byte) error {
	if len(body) > 0 {
		return errors.New("it has a body")
	}
	return nil
}

func (r response) checkHeaders(h http.Header) error {
	var faults []error
	for name, want := range r.headers {
		values := h.Values(name)
		switch {
		case len(values) == 0 && want.required:
			faults = append(faults, fmt.Errorf("%s is missing", name))
		case len(values) > 1:
			faults = append(faults, fmt.Errorf("%s is there %d times", name, len(values)))
		case len(values) == 1:
			if err := want.check(values[0]); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	return errors.Join(faults...)
}

func (h header) check(text string) error {
	var value any = text
	if h.number {
		value = json.Number(text)
		if !json.Valid([]byte(text)) {
			return fmt.Errorf("%q is not a number", text)
		}
	}
	return h.schema.Validate(value)
}

// checkDeclared is about the body of a status that is declared.
func (d *OpenAPI) checkDeclared(a Answer, op operation, r response) error {
	mediaType, err := mediaTypeOf(a.Header)
	if err != nil {
		return err
	}
	m, ok := r.content[mediaType]
	if !ok {
		return fmt.Errorf("Content-Type %s is not declared", mediaType)
	}
	if a.Method == http.MethodHead {
		return empty(a.Body)
	}
	value, err := decode(mediaType, a.Body)
	if err != nil {
		return err
	}
	if err := m.schema.Validate(value); err != nil {
		return err
	}
	switch {
	case m.shared:
		return d.checkCode(a, op)
	case a.Status == http.StatusOK && len(op.codes) > 0:
		return checkChildren(a.Body)
	}
	return nil
}

// checkUndeclared wants the shared error.
func (d *OpenAPI) checkUndeclared(a Answer, op operation) error {
	mediaType, err := mediaTypeOf(a.Header)
	if err != nil {
		return err
	}
	if mediaType != jsonType {
		return fmt.Errorf("an error as %s", mediaType)
	}
	if a.Method == http.MethodHead {
		return empty(a.Body)
	}
	value, err := decode(jsonType, a.Body)
	if err != nil {
		return err
	}
	if err := d.shared.Validate(value); err != nil {
		return err
	}
	return d.checkCode(a, op)
}

const jsonType = "application/json"

func mediaTypeOf(h http.Header) (string, error) {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return "", fmt.Errorf("Content-Type %q: %w", h.Get("Content-Type"), err)
	}
	return t, nil
}

func decode(mediaType string, body []byte) (any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("the body is not UTF-8")
	}
	if mediaType == jsonType {
		return jsonschema.UnmarshalJSON(bytes.NewReader(body))
	}
	return string(body), nil
}

// checkCode holds an error to the operation's list. What the list does not say
// (charged is null there) the body may; and an answer that is owed is in the
// end no longer retryable.
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
		if status, ok := d.outside[e.Code]; !ok || status != a.Status {
			return fmt.Errorf("the operation does not list %s with %d", e.Code, a.Status)
		}
		return d.checkLink(body.DocsURL, e.Code)
	}
	if listed.Status != a.Status {
		return fmt.Errorf("%s is listed with %d", e.Code, listed.Status)
	}
	if listed.Charged != nil && (e.Charged == nil || *e.Charged != *listed.Charged) {
		return fmt.Errorf("%s is listed with charged %v", e.Code, *listed.Charged)
	}
	if usedUp := e.Charged != nil && *e.Charged; e.Retryable != listed.Retryable && (!listed.Retryable || !usedUp) {
		return fmt.Errorf("%s is listed with retryable %v", e.Code, listed.Retryable)
	}
	return d.checkLink(body.DocsURL, e.Code)
}

// checkLink wants docs_url to lead to the place of the documentation that is about
// the code.
func (d *OpenAPI) checkLink(link, code string) error {
	u, err := url.Parse(link)
	switch {
	case err != nil:
		return fmt.Errorf("docs_url: %w", err)
	case u.Path != catalog.PathDocs || u.Fragment != catalog.ErrorAnchor(fault.Code(code)):
		return fmt.Errorf("docs_url is %s, which is not about %s", link, code)
	case !d.anchors[u.Fragment]:
		return fmt.Errorf("docs_url is %s, and the documentation has no such place", link)
	}
	return nil
}

// children are the fields of bundles that hold another operation's result.
func children() map[string]catalog.Operation {
	return map[string]catalog.Operation{"dns": catalog.DNS(), "ssl": catalog.SSLCheck(), "whois": catalog.Whois(), "headers": catalog.Headers()}
}

// checkChildren wants the code of a child that failed to be one that the
// child's own operation lists for a lookup.
func checkChildren(body []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	for name, op := range children() {
		var child struct {
			Error *struct{ Code fault.Code }
		}
		// A field of that name that is no child (headers of a headers result
		// is an object of texts) has no error, or one of another type.
		if raw, ok := fields[name]; !ok || json.Unmarshal(raw, &child) != nil || child.Error == nil {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(op.Errors), func(c fault.Code) bool { return c == fault.Overloaded })
		if !slices.Contains(own, child.Error.Code) {
			return fmt.Errorf("%s failed with %s, which is not in the list of %s", name, child.Error.Code, op.Slug)
		}
	}
	return nil
}
