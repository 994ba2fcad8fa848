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
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// sharedError refers to the schema of the error body. An error whose status is not declared
// must have such a body.
const sharedError = "#/components/schemas/ErrorBody"

// OpenAPI is a compiled description in OpenAPI 3.1. It supports only the features of OpenAPI that
// the service's description uses.
type OpenAPI struct {
	operations map[string]operation // by path; all are GET
	undeclared response             // the response for errors whose status is not declared
	codes      map[string]code      // the error codes that operations list
	outside    map[string]code      // the error codes that no operation lists
	page       string               // the documentation page, as text
}

// operation is the GET of a path.
type operation struct {
	Responses map[int]response
	Listed    []string `json:"x-error-codes"`
}

// code is an entry of the document's x-error-codes. If the entry has null for Charged or
// Retryable, the field is nil, and each error says in its body which value applies.
type code struct {
	Status             int
	Charged, Retryable *bool
}

// response is the declared response for one status.
type response struct {
	Content map[string]*part // by media type
	Headers map[string]*part
}

// part is a header, or the body of one media type.
type part struct {
	Required bool
	Schema   struct {
		Ref  string `json:"$ref"`
		Type string
	}
	compiled *jsonschema.Schema
}

// ParseOpenAPI compiles a whole description. It returns an error for a broken reference and
// for a feature that it does not support. The documentation page is needed because errors link
// to it.
func ParseOpenAPI(raw, page []byte) (*OpenAPI, error) {
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	inline(root, root)
	if raw, err = json.Marshal(root); err != nil {
		return nil, err
	}
	var written struct {
		OpenAPI string
		Paths   map[string]map[string]operation
		Codes   map[string]code `json:"x-error-codes"`
	}
	if err := json.Unmarshal(raw, &written); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(written.OpenAPI, "3.1.") {
		return nil, fmt.Errorf("it is OpenAPI %q, not 3.1", written.OpenAPI)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.AssertContent()
	if err := c.AddResource(resource, root); err != nil {
		return nil, err
	}
	shared := &part{}
	shared.Schema.Ref = sharedError
	if shared.compiled, err = c.Compile(resource + sharedError); err != nil {
		return nil, err
	}
	d := &OpenAPI{operations: map[string]operation{}, codes: written.Codes, undeclared: response{Content: map[string]*part{jsonType: shared}}, outside: map[string]code{}, page: string(page)}
	for _, info := range catalog.Codes() {
		d.outside[string(info.Code)] = code{Status: info.Status}
	}
	for path, methods := range written.Paths {
		op, ok := methods["get"]
		if !ok || len(methods) != 1 || len(op.Responses) == 0 {
			return nil, fmt.Errorf("%s: only GET is understood, and what it answers", path)
		}
		for _, name := range op.Listed {
			if _, ok := d.codes[name]; !ok {
				return nil, fmt.Errorf("it does not explain the code %q", name)
			}
			delete(d.outside, name)
		}
		if err := compile(c, path, op); err != nil {
			return nil, err
		}
		d.operations[path] = op
	}
	return d, nil
}

// inline replaces references to components by the components, except references to schemas. A
// broken reference stays in the document, so a later step fails to compile it.
func inline(root, node any) {
	if list, ok := node.([]any); ok {
		for _, child := range list {
			inline(root, child)
		}
	}
	members, _ := node.(map[string]any)
	for key, child := range members {
		o, _ := child.(map[string]any)
		ref, _ := o["$ref"].(string)
		if place, ok := strings.CutPrefix(ref, "#/components/"); ok && !strings.HasPrefix(place, "schemas/") {
			component := root
			for _, name := range append([]string{"components"}, strings.Split(place, "/")...) {
				parent, _ := component.(map[string]any)
				component = parent[name]
			}
			if component != nil {
				members[key], child = component, component
			}
		}
		inline(root, child)
	}
}

// resource is the name under which the description is known to the schema compiler.
const resource = "test:///openapi.json"

// compile compiles the declared responses of the GET of a path.
func compile(c *jsonschema.Compiler, path string, op operation) (err error) {
	for status, r := range op.Responses {
		for kind, parts := range map[string]map[string]*part{"headers": r.Headers, "content": r.Content} {
			for name, p := range parts {
				at := resource + "#"
				for _, step := range []string{"paths", path, "get", "responses", fmt.Sprint(status), kind, name, "schema"} {
					at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step) // escapes a step of a JSON Pointer (RFC 6901)
				}
				if p.compiled, err = c.Compile(at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Check returns an error if an answer to a request does not match the description. The target
// is a path and may have a query.
//
// An answer with a declared status must have the required headers, one of the declared media
// types, and a body that matches its schema. Any other answer must be an error with the shared
// body, even if the path or the method is not described. There is one exception: a 404 can be
// an HTML page if its path is not described and is not below /.well-known/. The answer to HEAD
// is the answer to GET without the body. A preflight response (204) and a 304 need no
// description, and have no body.
func (d *OpenAPI) Check(method, target string, a x402test.Reply) error {
	err := d.check(method, target, a)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %.200s answered %d, and that is not what the OpenAPI description says:\n%w\n%.700s", method, target, a.Status, err, a.Body)
}

func (d *OpenAPI) check(method, target string, a x402test.Reply) error {
	path, _, _ := strings.Cut(target, "?")
	op, described := d.operations[path]
	r, declared := op.Responses[a.Status]
	visit := method == http.MethodGet || method == http.MethodHead
	mediaType, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch {
	case method == http.MethodOptions && a.Status == http.StatusNoContent, a.Status == http.StatusNotModified:
		return empty(a.Body)
	case declared && visit:
	case !described && visit && a.Status == http.StatusNotFound && mediaType == "text/html" && !strings.HasPrefix(target, "/.well-known/"):
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
	body, ok := r.Content[mediaType]
	switch {
	case !ok:
		faults = append(faults, fmt.Errorf("Content-Type %q is not declared", a.Header.Get("Content-Type")))
	case method == http.MethodHead:
		faults = append(faults, empty(a.Body))
	default:
		faults = append(faults, d.checkBody(a, mediaType, op, body))
	}
	return errors.Join(faults...)
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

func (d *OpenAPI) checkBody(a x402test.Reply, mediaType string, op operation, p *part) error {
	if !utf8.Valid(a.Body) {
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
	case a.Status == http.StatusOK && len(op.Listed) > 0:
		return checkChildren(a.Body)
	}
	return nil
}

// checkCode compares an error with the entry for its code in the description. The operation
// must list the code, unless the description has it among the codes that no operation lists.
// Where the entry has null for charged or retryable, the error may have either value. If the
// entry says retryable, a charged error may still say not retryable: the service then owes the
// answer, but makes no further lookup.
func (d *OpenAPI) checkCode(a x402test.Reply, op operation) error {
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
	listed, ok := d.codes[e.Code]
	if !slices.Contains(op.Listed, e.Code) {
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
	case err != nil || link.Path != catalog.PathDocs || link.Fragment != catalog.ErrorAnchor(fault.Code(e.Code)) || !strings.Contains(d.page, ` id="`+link.Fragment+`"`):
		return fmt.Errorf("docs_url is %s, which is not a place about %s", body.DocsURL, e.Code)
	}
	return nil
}

// checkChildren checks each failed child in the result of a bundle. The child's operation must
// list the child's error code. The code must not be "overloaded".
func checkChildren(body []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	for name, op := range map[string]catalog.Operation{"dns": catalog.DNS(), "ssl": catalog.SSLCheck(), "whois": catalog.Whois(), "headers": catalog.Headers()} {
		var child struct {
			Error *struct{ Code fault.Code }
		}
		// A field with a child's name need not be a child. For example, the result of the
		// operation headers has a field headers, which is an object of texts.
		if raw, ok := fields[name]; !ok || json.Unmarshal(raw, &child) != nil || child.Error == nil {
			continue
		}
		if child.Error.Code == fault.Overloaded || !slices.Contains(op.Errors, child.Error.Code) {
			return fmt.Errorf("%s failed with %s, which is not in the list of %s", name, child.Error.Code, op.Slug)
		}
	}
	return nil
}
