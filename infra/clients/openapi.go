package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// sharedError is the body of every error that a response does not declare.
const sharedError = "#/components/schemas/ErrorBody"

// OpenAPI is a description of OpenAPI 3.1, compiled. It is the part of OpenAPI that
// the service's own description uses: a description with anything else is refused
// rather than passed over.
type OpenAPI struct {
	operations map[string]operation // by path; all are GET
	undeclared response             // of an error that a response does not declare
	outside    map[string]code      // that no operation lists
	anchors    map[string]bool      // of the documentation
}

// operation is one GET.
type operation struct {
	Responses map[int]response
	Listed    []string        `json:"x-error-codes"`
	codes     map[string]code // those that are listed
}

// code is an entry of the document's x-error-codes. What is nil only the body knows.
type code struct {
	Status             int
	Charged, Retryable *bool
}

// response is what one status declares.
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

// FetchOpenAPI reads the description of a running service, and its documentation.
func FetchOpenAPI(ctx context.Context, c *http.Client, origin string) (*OpenAPI, error) {
	var texts [][]byte
	for _, path := range []string{catalog.PathOpenAPI, catalog.PathDocs} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+path, nil)
		if err != nil {
			return nil, err
		}
		res, err := c.Do(r)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
		if err != nil || res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s answers %s: %.200s (%w)", r.URL, res.Status, text, err)
		}
		texts = append(texts, text)
	}
	return ParseOpenAPI(texts[0], texts[1])
}

// anchorsOf are the places of a page that a link can lead to.
func anchorsOf(page []byte) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`<[a-z0-9]+(?: [^>]*)? id="([^"]+)"`).FindAllSubmatch(page, -1) {
		all[string(m[1])] = true
	}
	return all
}

// ParseOpenAPI compiles a description, whole: a reference that leads nowhere is an
// error here and not at the first answer that needs it. page is the documentation,
// to which the errors point.
func ParseOpenAPI(raw, page []byte) (*OpenAPI, error) {
	d, err := parseOpenAPI(raw)
	if err != nil {
		return nil, fmt.Errorf("the description: %w", err)
	}
	d.anchors = anchorsOf(page)
	return d, nil
}

func parseOpenAPI(raw []byte) (*OpenAPI, error) {
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if err := inline(root, root); err != nil {
		return nil, err
	}
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
	c := compiler{jsonschema.NewCompiler()}
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
	d := &OpenAPI{operations: map[string]operation{}, undeclared: response{Content: map[string]*part{jsonType: shared}}, outside: map[string]code{}}
	for _, info := range catalog.Codes() {
		d.outside[string(info.Code)] = code{Status: info.Status}
	}
	for path, methods := range written.Paths {
		op, ok := methods["get"]
		if !ok || len(methods) != 1 || len(op.Responses) == 0 {
			return nil, fmt.Errorf("%s: only GET is understood, and what it answers", path)
		}
		op.codes = map[string]code{}
		for _, name := range op.Listed {
			if op.codes[name], ok = written.Codes[name]; !ok {
				return nil, fmt.Errorf("it does not explain the code %q", name)
			}
			delete(d.outside, name)
		}
		if err := c.operation(pointer("paths", path, "get"), op); err != nil {
			return nil, err
		}
		d.operations[path] = op
	}
	return d, nil
}

// inline puts the components that are not schemas in the place of what refers to them.
func inline(root, node any) error {
	switch n := node.(type) {
	case []any:
		for _, child := range n {
			if err := inline(root, child); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, child := range n {
			o, _ := child.(map[string]any)
			ref, _ := o["$ref"].(string)
			if place, ok := strings.CutPrefix(ref, "#/components/"); ok && !strings.HasPrefix(place, "schemas/") {
				child = root
				for _, name := range append([]string{"components"}, strings.Split(place, "/")...) {
					parent, _ := child.(map[string]any)
					child = parent[name]
				}
				if child == nil {
					return fmt.Errorf("nothing is called %s", place)
				}
				n[key] = child
			}
			if err := inline(root, child); err != nil {
				return err
			}
		}
	}
	return nil
}

// resource is what the description is called among the compiled schemas.
const resource = "test:///openapi.json"

type compiler struct{ *jsonschema.Compiler }

// operation compiles what an operation, which is at a place of the document, declares.
func (c compiler) operation(at string, op operation) (err error) {
	for status, r := range op.Responses {
		for kind, parts := range map[string]map[string]*part{"headers": r.Headers, "content": r.Content} {
			for name, p := range parts {
				place := at + pointer("responses", fmt.Sprint(status), kind, name, "schema")
				if p.compiled, err = c.Compile(resource + "#" + place); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pointer is a JSON pointer.
func pointer(names ...string) string {
	var at strings.Builder
	for _, name := range names {
		at.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return at.String()
}
