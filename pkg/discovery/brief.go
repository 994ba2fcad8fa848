package discovery

import (
	"fmt"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// brief is what a program must know about money to call the service well: the
// rules, without what concerns only few callers.
func brief(s Site, ops []catalog.Operation) []string {
	list := []string{
		"The 402 is free. A paid request with a bad parameter is answered 400 before any money moves; the lookup runs after the settlement.",
		"200, and every code that is charged below, is the answer that was paid for. The same signature, with the key that it was first sent with, without one if it had none, gets it again for " + keptFor() + ", with `" + x402.HeaderReplayed + ": true`; with another key it is 409, as is a key on another URL. One that came without the offer's `extensions` must be signed anew once its money has moved, which charges nothing more.",
		fmt.Sprintf("An answer that is owed costs nothing more: repeat the request, up to %d lookups within %s, at least %s apart. Then a refund is due, unless the target accepted the last connection and stayed silent: that 504 is the answer.", ledger.MaxLookups, owedFor(), owedSpacing()),
		briefPurchase(s, ops),
		"Error body: `{\"error\": {\"code\", \"message\", \"charged\", \"retryable\"}, \"request_id\", \"docs_url\"}`; `charged` is null when it is not known yet. If `retryable`, wait for `Retry-After` seconds.",
	}
	if slices.ContainsFunc(ops, func(op catalog.Operation) bool { return op.Kind == catalog.Bundle }) {
		list = append(list, "A bundle is 200 also when a lookup failed: its field is `{\"error\": {\"code\", \"message\"}}`. Fields named in `"+x402.HeaderOwed+"` are looked up again without a charge when you repeat the request.")
	}
	return list
}

// briefPurchase is purchase in short.
func briefPurchase(s Site, ops []catalog.Operation) string {
	text := "After a lost connection, or an error that is `retryable`, repeat the request; clients sign anew by themselves, which is one purchase and one charge at most. With your own header `" +
		x402.HeaderKey + "` (1 to 255 visible ASCII characters) a purchase is the payer and the key, for " + keptFor() + "; without, the payer and the URL while undecided or owed"
	if w := s.window(" after an answer (MCP: ", ")"); w != "" {
		text += " and for " + w
	}
	text += ". A new key asks anew"
	if slices.ContainsFunc(ops, func(op catalog.Operation) bool { return op.Kind == catalog.SmokeTest }) {
		text += "; the smoke test charges each payment without a key"
	}
	return text + "."
}

// shortPrograms are those of the texts for agents: eight lines each.
type shortPrograms struct{ TypeScript, Python snippet }

func shortProgramsOf(s Site) (shortPrograms, error) {
	list := snippetList()
	for i, p := range list {
		switch p.ID {
		case "typescript":
			list[i].file = "short.mts"
		case "python":
			list[i].file = "short.py"
		}
	}
	list = slices.DeleteFunc(list, func(p snippet) bool { return p.ID != "typescript" && p.ID != "python" })
	list, err := programs(s, list)
	if err != nil {
		return shortPrograms{}, err
	}
	return shortPrograms{list[0], list[1]}, nil
}
