package judge

// Way says how a payer asks again when it has no answer.
type Way string

// The ways of a payer.
const (
	Same       Way = "same"       // the payer repeats its signature, and signs again only after a 402
	New        Way = "new"        // the payer signs again for each request, as most existing clients do
	Key        Way = "key"        // the payer signs again, and names the purchase by Idempotency-Key
	Identifier Way = "identifier" // the payer signs again, and names the purchase by payment-identifier
	Tool       Way = "tool"       // like Same, over the Model Context Protocol
	NewTool    Way = "new-tool"   // like New, over the Model Context Protocol
)

func allWays() []Way { return []Way{Same, New, Key, Identifier, Tool, NewTool} }

// repeatsSignature reports whether the payer sends the same signature again.
func (w Way) repeatsSignature() bool { return w == Same || w == Tool }

func (w Way) isTool() bool { return w == Tool || w == NewTool }

// summary returns a description of the way.
func (w Way) summary() string {
	switch w {
	case Same:
		return "the same signature again"
	case New:
		return "a new signature for each try"
	case Key:
		return "new signatures with one Idempotency-Key"
	case Identifier:
		return "new signatures with one payment-identifier"
	case Tool:
		return "the same signature again, over MCP"
	case NewTool:
		return "a new signature for each try, over MCP"
	default:
		return string(w)
	}
}

// Promise is a promise that a seller can make beyond the protocol.
type Promise string

// The promises. Each one means: if a payer asks again for a purchase in the way described, the
// purchase is charged once and answered.
const (
	PromiseSame       Promise = "same"       // the payer sends the same payment again
	PromiseNew        Promise = "new"        // the payer signs again for the same request, not long after
	PromiseKey        Promise = "key"        // Idempotency-Key names the purchase
	PromiseIdentifier Promise = "identifier" // payment-identifier names the purchase, and offers declare this extension
)

func allPromises() []Promise {
	return []Promise{PromiseSame, PromiseNew, PromiseKey, PromiseIdentifier}
}

// promise returns the promise that covers purchases in this way.
func (w Way) promise() Promise {
	switch w {
	case Same, Tool:
		return PromiseSame
	case Key:
		return PromiseKey
	case Identifier:
		return PromiseIdentifier
	default:
		return PromiseNew
	}
}
