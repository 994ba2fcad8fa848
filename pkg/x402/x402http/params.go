package x402http

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Param is a parameter of a tool. A model sees all its fields.
type Param struct {
	Name, Description string
	Required          bool
	// Type is a type of JSON Schema: string, integer, number or boolean. If the endpoint takes
	// POST, it may also be array or object. Empty means string.
	Type string
}

// checkParams returns an error if the path or a parameter of a tool is wrong.
func (t Tool) checkParams() error {
	if !strings.HasPrefix(t.Path, "/") || strings.ContainsAny(t.Path, "?# ") {
		return fmt.Errorf("its Path is %q, and must be a path such as /weather or /weather/{city}", t.Path)
	}
	params := map[string]Param{}
	for _, p := range t.Params {
		if err := t.checkParam(p); err != nil {
			return err
		}
		if _, taken := params[p.Name]; taken {
			return fmt.Errorf("two parameters are called %s", p.Name)
		}
		params[p.Name] = p
	}
	for _, segment := range strings.Split(t.Path, "/") {
		if err := checkSegment(segment, params); err != nil {
			return err
		}
	}
	return nil
}

// checkParam returns an error if a parameter is wrong by itself, whatever the others are.
func (t Tool) checkParam(p Param) error {
	kinds := []string{"string", "integer", "number", "boolean", "array", "object"}
	switch {
	case p.Name == "":
		return errors.New("a parameter has no name")
	case !slices.Contains(kinds, p.jsonType()):
		return fmt.Errorf("the parameter %s has the type %s, which JSON Schema does not have", p.Name, p.Type)
	case p.isNested() && t.Endpoint.endpoint.Method() != http.MethodPost:
		return fmt.Errorf("the parameter %s is an %s, which no query has: sell the handler with Post", p.Name, p.Type)
	}
	return nil
}

// checkSegment returns an error if a segment of the path is wrong.
func checkSegment(segment string, params map[string]Param) error {
	name, _, wild := parseWildcard(segment)
	if !wild {
		if strings.ContainsAny(segment, "{}") {
			return fmt.Errorf("the segment %s of its Path is not a wildcard such as {city}", segment)
		}
		return nil
	}
	p, ok := params[name]
	if !ok || !p.Required || p.isNested() {
		return fmt.Errorf("the wildcard {%s} of its Path needs a parameter of that name which is Required and not nested", name)
	}
	return nil
}

// parseWildcard parses a wildcard in a path, such as {city} or {rest...}. ok is false if the
// segment is not a wildcard.
func parseWildcard(segment string) (name string, rest, ok bool) {
	inner, opens := strings.CutPrefix(segment, "{")
	inner, closes := strings.CutSuffix(inner, "}")
	name, rest = strings.CutSuffix(inner, "...")
	return name, rest, opens && closes && name != ""
}

func (t Tool) schema() map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, p := range t.Params {
		properties[p.Name] = map[string]any{
			"type":        p.jsonType(),
			"description": p.Description,
		}
		if p.Required {
			required = append(required, p.Name)
		}
	}
	return map[string]any{
		"type":                 "object",
		"properties":           properties,
		"required":             required,
		"additionalProperties": false,
	}
}

// request turns a call of the tool into an HTTP request, and returns the request's URL and
// body. args has the arguments of the call. The error is a *fault.Error. An argument that is
// null counts as missing. An unknown argument is an error, because a model that misspells an
// argument should learn of it before it pays.
func (t Tool) request(args map[string]any) (*url.URL, []byte, error) {
	texts := map[string]string{}
	given := map[string]any{}
	names := []string{}
	for _, p := range t.Params {
		names = append(names, p.Name)
		value := args[p.Name]
		if value == nil {
			if p.Required {
				return t.plainURL(), nil, fault.Newf(fault.InvalidArguments, nil, "The argument %s is missing.", p.Name)
			}
			continue
		}
		text, ok := p.text(value)
		if !ok {
			cause := fmt.Errorf("it is a %T", value)
			return t.plainURL(), nil, fault.Newf(fault.InvalidArguments, cause, "The argument %s must be %s.", p.Name, p.typeWithArticle())
		}
		texts[p.Name] = text
		given[p.Name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !slices.Contains(names, name) {
			return t.plainURL(), nil, fault.Newf(fault.InvalidArguments, nil, "There is no argument %s: %s takes %s.",
				untrusted.Quote(name, 40), t.Name, strings.Join(names, ", "))
		}
	}
	target, err := t.fillPath(texts, given)
	if err != nil {
		return t.plainURL(), nil, err
	}
	if t.Endpoint.endpoint.Method() == http.MethodPost {
		return target, untrusted.Compact(given), nil
	}
	values := url.Values{}
	for name := range given {
		values.Set(name, texts[name])
	}
	target.RawQuery = values.Encode()
	return target, nil, nil
}

// plainURL returns the path of the tool as a URL, with its wildcards.
func (t Tool) plainURL() *url.URL { return &url.URL{Path: t.Path} }

// fillPath returns the tool's path with its wildcards replaced by the texts of arguments. It
// deletes these arguments from args.
func (t Tool) fillPath(texts map[string]string, args map[string]any) (*url.URL, error) {
	segments := strings.Split(t.Path, "/")
	for i, segment := range segments {
		name, rest, wild := parseWildcard(segment)
		if !wild {
			continue
		}
		filled := []string{texts[name]}
		if rest {
			filled = strings.Split(texts[name], "/")
		}
		for n, text := range filled {
			if text == "" || text == "." || text == ".." { // routers would remove such a segment
				return nil, fault.Newf(fault.InvalidArguments, nil, "The argument %s cannot stand in a path: no part of it may be empty or a dot.", name)
			}
			filled[n] = url.PathEscape(text)
		}
		segments[i] = strings.Join(filled, "/")
		delete(args, name)
	}
	target, err := url.Parse(strings.Join(segments, "/"))
	if err != nil {
		return nil, fault.Newf(fault.InvalidArguments, err, "The arguments cannot stand in a path.")
	}
	return target, nil
}

// jsonType returns the parameter's type in JSON Schema.
func (p Param) jsonType() string {
	if p.Type == "" {
		return "string"
	}
	return p.Type
}

// typeWithArticle returns the parameter's type with an article, for use in a sentence.
func (p Param) typeWithArticle() string {
	switch kind := p.jsonType(); kind {
	case "integer", "array", "object":
		return "an " + kind
	default:
		return "a " + kind
	}
}

// isNested reports whether the parameter is an array or an object, which has no text form.
func (p Param) isNested() bool { return p.Type == "array" || p.Type == "object" }

// text returns the argument v as it is written in a path or a query. For an array or an object
// the text is empty. ok is false if the argument does not have the parameter's type. A number
// or a boolean may be given as a string. As in JSON Schema, a number without a fraction is an
// integer in any notation, such as 443.0 or 4.43e2.
func (p Param) text(v any) (text string, ok bool) {
	kind := p.jsonType()
	switch v := v.(type) {
	case string:
		return v, !p.isNested()
	case bool:
		return strconv.FormatBool(v), kind == "boolean"
	case []any:
		return "", kind == "array"
	case map[string]any:
		return "", kind == "object"
	case json.Number:
		return numberText(v), kind == "integer" || kind == "number"
	}
	return "", false
}

// numberText returns a number without a fraction in the usual notation of integers, and any
// other number as it was sent.
func numberText(n json.Number) string {
	const exact = 1 << 53 // a float64 does not represent all larger integers exactly
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= exact {
		return n.String()
	}
	return strconv.FormatInt(int64(f), 10)
}
