package discovery

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
	layout "github.com/tidwall/pretty"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

//go:embed assets/*.tmpl assets/snippets assets/generated/colored.html assets/favicon.svg
var assets embed.FS

// view is what the templates see: the catalog and the Site, already in words.
type view struct {
	Site         Site
	Service      string
	Tagline      string
	Homepage     string
	Network      string
	Chain        string // the number of the network
	Fresh, Once  string // what an answer is, and what is charged once
	Instructions string // of the manifest
	Guidance     string // of the OpenAPI description
	Ops          []opView
	Playbooks    []playbook
	Documents    []link
	Prices       []string
	Handshake    []string
	Rules        []string
	Essentials   []string           // the first of the rules
	Details      []string           // the others
	Purchase     string             // the one of them about what is charged once
	Listing      []snippet          // all programs
	Programs     map[string]snippet // the same by their IDs
	Refunds      []string
	ReceiptNote  string   // on receipts, in short; empty without a key
	ReceiptText  []string // the chapter on them
	Receipt      []row    // members of a receipt
	Gateway      string
	Money        []moneyGroup
	Signing      []row
	Signature    []row
	Response     []row
	Wire         wireExample // of the first operation
	Offered      opView
	ErrorJSON    string    // an error body
	Payment      []outcome // the payment errors of every operation
	Outside      []outcome
	Own          []outcome // the codes that belong to some operations
	Every        []outcome // every code, once
	Limits       []catalog.Note
	Caveats      []catalog.Note
	Untrusted    string
	MCP          mcpView

	operations []catalog.Operation
}

// opView is an operation and what is derived from it. A template reads fields and
// calls no methods.
type opView struct {
	catalog.Operation
	URL          string
	ExampleURL   string
	DocsURL      string
	DisplayPrice string
	PriceLine    string
	ParamsText   string
	Seconds      int       // the deadline of the lookup
	OwnExample   bool      // whether the example answer is not made of other operations'
	ResponseJSON string    // the example answer, indented
	OwnRows      []row     // without what another operation says
	Outcomes     []outcome // of the operation's own codes
}

// link is a document that another one points to.
type link struct{ Title, Path, URL, Text string }

func newView(s Site, ops []catalog.Operation, books []catalog.Playbook) (*view, error) {
	if len(ops) == 0 {
		return nil, fmt.Errorf("no operations")
	}
	v := &view{
		Site: s, Service: catalog.Service, Tagline: catalog.Tagline, Homepage: catalog.Homepage,
		Network: s.networkName(), Chain: s.chainID(), Fresh: fresh(s), Once: once(s), Prices: prices(ops), Handshake: handshake(), Rules: rules(s, ops), Essentials: essentials(s, ops), Details: details(ops), Purchase: purchase(s, ops),
		Refunds: refunds(s), Gateway: gateway, ReceiptNote: receiptNote(s), ReceiptText: receiptText(s), Receipt: described[receipt.Statement](),
		Signing: signing(s), Signature: described[x402.Payload](), Response: described[x402.SettleResponse](),
		Payment: outcomes(catalog.PaymentErrors()),
		Limits:  catalog.Limits(s.Caps), Caveats: catalog.Caveats(), Untrusted: untrusted,
		Documents: links(s), operations: ops,
	}
	for _, op := range ops {
		o, err := opViewOf(s, op)
		if err != nil {
			return nil, err
		}
		v.Ops = append(v.Ops, o)
	}
	for _, b := range books {
		v.Playbooks = append(v.Playbooks, playbookOf(s, ops, b))
	}
	return v, v.finish()
}

// finish adds what is itself rendered: the offer and the two short texts.
func (v *view) finish() error {
	v.Offered = v.Ops[0]
	v.Outside, v.Every = outcomes(outsideCodes()), everyOutcome(v.operations)
	v.Own = slices.DeleteFunc(slices.Clone(v.Every), func(o outcome) bool {
		return slices.Contains(catalog.PaymentErrors(), o.Code) || slices.Contains(outsideCodes(), o.Code)
	})
	v.Money = moneyGroups(v.operations)
	var err error
	if v.MCP, err = mcpViewOf(v.Site); err != nil {
		return err
	}
	if v.Listing, err = programs(v.Site); err != nil {
		return err
	}
	v.Programs = map[string]snippet{}
	for _, p := range v.Listing {
		v.Programs[p.ID] = p
	}
	if v.Wire, err = wireExampleOf(v.operations[0], v.Site); err != nil {
		return err
	}
	raw, err := encode(errorBodyOf(v.Offered, v.Site.Origin))
	if err != nil {
		return err
	}
	v.ErrorJSON = laid(raw)
	for _, t := range []struct {
		to   *string
		name string
	}{{&v.Instructions, "instructions.txt.tmpl"}, {&v.Guidance, "guidance.txt.tmpl"}} {
		text, err := v.text(t.name)
		if err != nil {
			return err
		}
		*t.to = strings.TrimSpace(string(text))
	}
	return nil
}

// errorBodyOf shows an error that was charged, where the operation has one:
// it is the one that readers ask about.
func errorBodyOf(op opView, origin string) fault.Body {
	shown := outcomeOf(fault.PaymentInProgress)
	for _, o := range op.Outcomes {
		if o.Class == fault.Answer {
			shown = o
			break
		}
	}
	return fault.Body{
		Error:     fault.Detail{Code: shown.Code, Message: shown.Message, Charged: shown.charged, Retryable: shown.Retry},
		RequestID: "Yx3kQhJ5oAMEJ3g=", DocsURL: catalog.ErrorURL(origin, shown.Code),
	}
}

func opViewOf(s Site, op catalog.Operation) (opView, error) {
	if !json.Valid([]byte(op.Response)) {
		return opView{}, fmt.Errorf("the example response of %s is not JSON", op.Slug)
	}
	return opView{
		Operation: op, URL: s.Origin + op.Path, ExampleURL: op.ExampleURL(s.Origin), DocsURL: op.DocsURL(s.Origin),
		DisplayPrice: op.Price(), PriceLine: priceLine(op), ParamsText: paramsText(op),
		Seconds: int(op.Deadline.Seconds()), OwnExample: op.Kind != catalog.Bundle,
		ResponseJSON: laid([]byte(op.Response)), OwnRows: ownRows(op), Outcomes: outcomes(op.Errors),
	}, nil
}

// priceLine is the operation with its price in words.
func priceLine(op catalog.Operation) string {
	return fmt.Sprintf("%s: %s (%s atomic units) for `%s %s`", op.Title, op.Price(), op.Amount, catalog.Method, op.Path)
}

// paramsText is the operation's parameters in one line, with the values that they
// take.
func paramsText(op catalog.Operation) string {
	var all []string
	for _, p := range op.Params {
		text := "`" + p.Name + "`"
		switch {
		case len(p.Enum) > 0:
			text += " (optional: " + strings.Join(p.Enum, ", ") + "; default " + p.Default + ")"
		case !p.Required:
			text += " (optional, ignored)"
		}
		all = append(all, text)
	}
	return "Parameters: " + strings.Join(all, ", ") + "."
}

// ownRows are the lines of the fields that the operation does not share with
// another; a field with another operation's result names it.
func ownRows(op catalog.Operation) []row {
	if op.Kind != catalog.Bundle {
		return rows(op.Fields)
	}
	var all []row
	for _, f := range op.Fields {
		if len(f.Items) == 0 || f.Items[0].Schema == "" {
			all = append(all, rows([]catalog.Field{f})...)
			continue
		}
		text := f.Description
		for _, other := range catalog.All() {
			if other.Result == f.Items[0].Schema {
				text = "The fields of " + other.Title + ", or {error: {code, message}} if that lookup failed"
			}
		}
		all = append(all, row{f.Name, f.TypeText(), text})
	}
	return all
}

func links(s Site) []link {
	var all []link
	for _, l := range []link{
		{Title: "Documentation", Path: catalog.PathDocs, Text: "every operation with parameters, example, fields and errors, for people"},
		{Title: "llms.txt", Path: catalog.PathLLMs, Text: "prices and how to pay, in short"},
		{Title: "llms-full.txt", Path: catalog.PathLLMsFull, Text: "the same with every parameter, field and error"},
		{Title: "OpenAPI 3.1", Path: catalog.PathOpenAPI, Text: "paths, schemas and prices for generators"},
		{Title: "Tool catalog", Path: catalog.PathCatalog, Text: "operations, parameters, fields and errors as JSON"},
		{Title: "Payment manifest", Path: catalog.PathManifest, Text: "what each path costs and whom it pays, as JSON"},
	} {
		l.URL = s.Origin + l.Path
		all = append(all, l)
	}
	return all
}

// text renders one of the text templates.
func (v *view) text(name string) ([]byte, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"inc": func(i int) int { return i + 1 }, "compact": func(text string) string { return string(layout.Ugly([]byte(text))) }}).ParseFS(assets, "assets/"+name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
