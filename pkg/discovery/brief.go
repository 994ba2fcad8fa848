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
		"The 402 is free. A paid request with a bad parameter is answered 400 before any money moves; then settlement completes before the lookup runs.",
		"200, and every code that is charged below, is the answer that was paid for. The same signature on the same URL gets it again for " + keptFor() + ", with `" + x402.HeaderReplayed + ": true`.",
		fmt.Sprintf("An answer that is owed costs nothing more: repeat the request, up to %d lookups within %s, at least %s apart. Then a refund is due.", ledger.MaxLookups, owedFor(), owedSpacing()),
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
	text := "After a lost connection, or an error that is `retryable`, repeat the request; clients sign anew by themselves, and that is one purchase and at most one charge. With your own header `" +
		x402.HeaderKey + "` (1 to 255 visible ASCII characters) a purchase is the payer and the key, for " + keptFor() + " (do not use the key for another URL); without, the payer and the URL while undecided or owed"
	if w := seconds(s.DuplicateWindow); w > 0 {
		text += fmt.Sprintf(" and for %d seconds after the answer", w)
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
