package discovery

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// documentSchemas returns the schemas of all results and of two documents, the tool catalog
// and the payment manifest, together with the named schemas that they contain.
func documentSchemas() object {
	var topFields []catalog.Field
	for _, op := range catalog.All() {
		topFields = append(topFields, catalog.Field{
			Type:        "object",
			Schema:      op.Result,
			Description: "Result of " + op.Title + ".",
			Fields:      op.Fields,
		})
	}
	return namedSchemas(append(topFields,
		catalog.Field{
			Type:        "object",
			Schema:      "ToolCatalog",
			Description: "Every operation.",
			Fields:      catalog.FieldsOf[toolCatalog](),
		},
		catalog.Field{
			Type:        "object",
			Schema:      "PaymentManifest",
			Description: "What each path costs.",
			Fields:      catalog.FieldsOf[manifest](),
		},
	))
}

// answerableCodes returns all codes that an operation can answer over HTTP. These are the
// codes that the operation lists, and three codes that every priced path can answer although
// the spec lists them for no operation.
func answerableCodes(op catalog.Operation) []fault.Code {
	return append(op.AllErrors(), fault.InternalError, fault.IdempotencyConflict, fault.InvalidIdempotencyKey)
}

// errorSet is the set of codes that one or more operations answer with the same status. In the
// OpenAPI description it is one response.
type errorSet struct {
	Name    string
	Status  int
	Codes   []fault.Code
	Headers object // headers that a response with any of the codes can have
}

// declaredErrors returns the error statuses that an operation declares in the OpenAPI
// description, each with its codes. For two operations, spec §4.1 gives the exact set of
// statuses, and readers compare the description with the spec. So these operations declare
// only that set, and their codes with other statuses are listed only in x-error-codes. All
// other operations declare every status that they can answer.
//
// The description has no response named "default", because that would count as one more
// declared response. So generated clients have no type for errors with undeclared statuses,
// but they still give the body to their caller. TestGeneratedClients in infra/clients checks
// that.
func declaredErrors(op catalog.Operation) (sets []errorSet) {
	var statuses []int
	switch op.Slug {
	case catalog.DNS().Slug:
		statuses = []int{http.StatusBadRequest, http.StatusPaymentRequired}
	case catalog.Ping().Slug:
		statuses = []int{http.StatusPaymentRequired}
	}
	for _, o := range outcomes(answerableCodes(op)) {
		if statuses != nil && !slices.Contains(statuses, o.Status) {
			continue
		}
		i := slices.IndexFunc(sets, func(e errorSet) bool { return e.Status == o.Status })
		if i < 0 {
			sets = append(sets, errorSet{Status: o.Status, Codes: []fault.Code{o.Code}})
			continue
		}
		sets[i].Codes = append(sets[i].Codes, o.Code)
	}
	slices.SortFunc(sets, func(a, b errorSet) int { return a.Status - b.Status })
	return sets
}

// errorSets names the error responses that the operations declare, and returns each of them
// once, except the 402. The first one is the 429 that the free documents declare. The first
// response with a status is named after the status. Further responses with that status get the
// same name and a number. The name of a 402 is always PaymentRequired, because its body is the
// challenge, whatever its code.
func errorSets(ops []opView) []errorSet {
	name := strings.NewReplacer(" ", "", "Server ", "")
	rateLimited := errorSet{Status: http.StatusTooManyRequests, Codes: []fault.Code{fault.RateLimited}}
	documents := opView{Declared: []errorSet{rateLimited}}
	var sets []errorSet
	seen := map[int]int{}
	for _, op := range append([]opView{documents}, ops...) {
		for i, e := range op.Declared {
			first := slices.IndexFunc(sets, func(s errorSet) bool { return slices.Equal(s.Codes, e.Codes) })
			switch {
			case e.Status == http.StatusPaymentRequired:
				e.Name = "PaymentRequired"
			case first >= 0:
				e.Name = sets[first].Name
			default:
				e.Name = name.Replace(http.StatusText(e.Status))
				e.Headers = headersOf(e)
				seen[e.Status]++
				if seen[e.Status] > 1 {
					e.Name += strconv.Itoa(seen[e.Status])
				}
				sets = append(sets, e)
			}
			op.Declared[i] = e
		}
	}
	return sets
}

// headersOf returns the headers that a response with any of the codes can have.
func headersOf(e errorSet) object {
	var headers object
	ref := func(header, name string) {
		headers = append(headers, member{header, object{{"$ref", "#/components/headers/" + name}}})
	}
	charged := false
	replayed := false
	for _, o := range outcomes(e.Codes) {
		if x402.ChargeOf(o.Info).Yes {
			charged = true
		}
		if o.Class == fault.Answer { // the ledger can replay an error of this class
			replayed = true
		}
	}
	if charged {
		ref(x402.HeaderResponse, "PaymentResponse")
	}
	if replayed {
		ref(x402.HeaderReplayed, "IdempotentReplayed")
		ref(x402.HeaderAge, "Age")
	}
	switch {
	case e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable:
		ref(fault.HeaderRetryAfter, "RetryAfter")
	case e.Status == http.StatusConflict || e.Status >= http.StatusInternalServerError:
		ref(fault.HeaderRetryAfter, "MayRetryAfter")
	}
	return headers
}

// outcome describes what an error code means for the payment that came with the request, in
// the words of the documents.
type outcome struct {
	fault.Info
	// Charged and Retryable are the texts of table cells, such as "yes" and "no".
	Charged   string
	Retryable string
	Anchor    string // the anchor of the code in the documentation
	// Moved is the value of "charged" in the error body. It is nil if the code alone does not
	// determine that value.
	Moved *bool
}

func outcomeOf(info fault.Info) outcome {
	charge := x402.ChargeOf(info)
	o := outcome{
		Info:      info,
		Charged:   charge.String(),
		Retryable: "no",
		Anchor:    catalog.ErrorAnchor(info.Code),
	}
	if charge.Yes != charge.No && !charge.Unknown {
		o.Moved = &charge.Yes
	}
	switch {
	case info.Code == fault.PaymentRequired: // a 402 charges nothing
		o.Charged = "no"
		o.Moved = new(bool)
	case info.Code == fault.InternalError: // this code alone does not say whether an answer is owed: one is owed only if the error followed a settlement
	case info.Class == fault.Owed:
		o.Charged = "yes, answer owed"
	}
	if info.Retry {
		o.Retryable = "yes"
	}
	return o
}

// outcomes returns the outcomes of a list of codes.
func outcomes(codes []fault.Code) []outcome {
	var all []outcome
	for _, c := range codes {
		info, _ := catalog.CodeOf(c)
		all = append(all, outcomeOf(info))
	}
	return all
}

// outsideCodes returns the codes that no operation has in its list of errors.
func outsideCodes() []fault.Code {
	return []fault.Code{
		fault.InternalError,
		catalog.UnknownPath,
		fault.MethodNotAllowed,
		fault.IdempotencyConflict,
		fault.InvalidIdempotencyKey,
		fault.InvalidArguments,
	}
}

// codesOfClass returns the codes of one class in a list.
func codesOfClass(list []outcome, class fault.Class) (codes []string) {
	for _, o := range list {
		if o.Class == class {
			codes = append(codes, string(o.Code))
		}
	}
	return codes
}

// inBackticks returns a list of names in backticks, or "" if there are no names.
func inBackticks(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// moneyGroup is a group of codes that mean the same for a payment.
type moneyGroup struct {
	Charged, Retryable string
	Codes              []fault.Info
}

// moneyGroups groups codes by what they mean for the payment.
func moneyGroups(list []outcome) []moneyGroup {
	var groups []moneyGroup
	for _, o := range list {
		i := slices.IndexFunc(groups, func(g moneyGroup) bool {
			return g.Charged == o.Charged && g.Retryable == o.Retryable
		})
		if i < 0 {
			groups = append(groups, moneyGroup{Charged: o.Charged, Retryable: o.Retryable})
			i = len(groups) - 1
		}
		groups[i].Codes = append(groups[i].Codes, o.Info)
	}
	return groups
}
