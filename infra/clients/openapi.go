package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// resource is what the description is called among the compiled schemas.
const resource = "test:///openapi.json"

// sharedError is the body of every error that a response does not declare.
const sharedError = "#/components/schemas/ErrorBody"

// OpenAPI is a description of OpenAPI 3.1, compiled. It is the part of OpenAPI that
// the service's own description uses: a description with anything else is refused
// rather than passed over.
type OpenAPI struct {
	operations map[string]operation // by path; all are GET
	shared     *jsonschema.Schema
	outside    map[string]int  // status of the codes that no operation lists
	anchors    map[string]bool // of the documentation
}

// operation is one GET.
type operation struct {
	responses map[int]response
	codes     map[string]code
}

// code is an entry of the document's x-error-codes.
type code struct {
	Status    int   `json:"status"`
	Charged   *bool `json:"charged"` // nil: only the body knows
	Retryable bool  `json:"retryable"`
}

// response is what one status declares.
type response struct {
	content map[string]media // by media type
	headers map[string]header
}

type media struct {
	schema *jsonschema.Schema
	shared bool // the schema is the shared error
}

type header struct {
	schema   *jsonschema.Schema
	required bool
	number   bool // its text is a JSON number
}

// The description as it is written.
type (
	rawDocument struct {
		OpenAPI    string
		Paths      map[string]map[string]rawOperation
		Components struct {
			Headers   map[string]rawHeader
			Responses map[string]rawResponse
		}
		Codes map[string]code `json:"x-error-codes"`
	}
	rawOperation struct {
		Responses map[string]rawResponse
		Codes     []string `json:"x-error-codes"`
	}
	rawResponse struct {
		Ref     string `json:"$ref"`
		Headers map[string]rawHeader
		Content map[string]struct {
			Schema struct {
				Ref string `json:"$ref"`
			}
		}
	}
	rawHeader struct {
		Ref      string `json:"$ref"`
		Required bool
		Schema   struct{ Type string }
	}
)

// maxDocument bounds what FetchOpenAPI reads.
const maxDocument = 4 << 20

// FetchOpenAPI reads the description of a running service, and its documentation.
func FetchOpenAPI(ctx context.Context, c *http.Client, origin string) (*OpenAPI, error) {
	raw, err := fetch(ctx, c, origin+catalog.PathOpenAPI)
	if err != nil {
		return nil, err
	}
	page, err := fetch(ctx, c, origin+catalog.PathDocs)
	if err != nil {
		return nil, err
	}
	return ParseOpenAPI(raw, page)
}

func fetch(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxDocument))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d: %.200s", r.URL, res.StatusCode, raw)
	}
	return raw, nil
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
	var written rawDocument
	if err := json.Unmarshal(raw, &written); err != nil {
		return nil, fmt.Errorf("the description: %w", err)
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("the description: %w", err)
	}
	if !strings.HasPrefix(written.OpenAPI, "3.1.") {
		return nil, fmt.Errorf("the description is OpenAPI %q, not 3.1", written.OpenAPI)
	}
	c := compiler{
		Compiler: jsonschema.NewCompiler(), headers: written.Components.Headers,
		responses: written.Components.Responses, codes: written.Codes,
	}
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.AssertContent()
	if err := c.AddResource(resource, tree); err != nil {
		return nil, err
	}
	d := &OpenAPI{operations: map[string]operation{}, outside: map[string]int{}, anchors: anchorsOf(page)}
	if d.shared, err = c.Compile(resource + sharedError); err != nil {
		return nil, err
	}
	for path, methods := range written.Paths {
		get, ok := methods["get"]
		if !ok || len(methods) != 1 {
			return nil, fmt.Errorf("%s: only GET is understood", path)
		}
		if d.operations[path], err = c.operation("/paths/"+escape(path)+"/get", get); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, info := range fault.All() {
		if !d.lists(string(info.Code)) {
			d.outside[string(info.Code)] = info.Status
		}
	}
	return d, nil
}

// lists says whether any operation lists a code.
func (d *OpenAPI) lists(name string) bool {
	for _, op := range d.operations {
		if _, ok := op.codes[name]; ok {
			return true
		}
	}
	return false
}

// Describes says whether a path is in the description.
func (d *OpenAPI) Describes(path string) bool {
	_, ok := d.operations[withoutQuery(path)]
	return ok
}

type compiler struct {
	*jsonschema.Compiler
	headers   map[string]rawHeader
	responses map[string]rawResponse
	codes     map[string]code
}

func (c compiler) operation(at string, written rawOperation) (operation, error) {
	op := operation{responses: map[int]response{}, codes: map[string]code{}}
	for text, r := range written.Responses {
		status, err := strconv.Atoi(text)
		if err != nil {
			return op, fmt.Errorf("responses: only single statuses are understood, not %q", text)
		}
		if op.responses[status], err = c.response(at+"/responses/"+text, r); err != nil {
			return op, fmt.Errorf("%s: %w", text, err)
		}
	}
	if len(op.responses) == 0 {
		return op, errors.New("no responses")
	}
	for _, name := range written.Codes {
		e, ok := c.codes[name]
		if !ok {
			return op, fmt.Errorf("the document does not explain the code %q", name)
		}
		op.codes[name] = e
	}
	return op, nil
}

func (c compiler) response(at string, written rawResponse) (response, error) {
	r := response{content: map[string]media{}, headers: map[string]header{}}
	if written.Ref != "" {
		name := strings.TrimPrefix(written.Ref, "#/components/responses/")
		referred, ok := c.responses[name]
		if !ok || referred.Ref != "" {
			return r, fmt.Errorf("no response is called %q", name)
		}
		written, at = referred, "/components/responses/"+escape(name)
	}
	for mediaType, m := range written.Content {
		s, err := c.Compile(resource + "#" + at + "/content/" + escape(mediaType) + "/schema")
		if err != nil {
			return r, err
		}
		r.content[mediaType] = media{s, m.Schema.Ref == sharedError}
	}
	for name, h := range written.Headers {
		where := at + "/headers/" + escape(name)
		if h.Ref != "" {
			component := strings.TrimPrefix(h.Ref, "#/components/headers/")
			referred, ok := c.headers[component]
			if !ok {
				return r, fmt.Errorf("%s: no header is called %q", name, component)
			}
			h, where = referred, "/components/headers/"+escape(component)
		}
		s, err := c.Compile(resource + "#" + where + "/schema")
		if err != nil {
			return r, err
		}
		r.headers[name] = header{schema: s, required: h.Required, number: h.Schema.Type == "integer"}
	}
	return r, nil
}

// escape makes a name a part of a JSON pointer.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func withoutQuery(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}
