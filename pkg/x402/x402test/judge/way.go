package judge

// Way is how a payer asks again when it has no answer.
type Way string

// The ways of a payer.
const (
	Same       Way = "same"       // it sends its signature again, until it is told to pay: then it signs again
	New        Way = "new"        // it signs again for each try, as the clients of the field do
	Key        Way = "key"        // it signs again, and names the purchase by Idempotency-Key
	Identifier Way = "identifier" // it signs again, and names the purchase by payment-identifier
	Tool       Way = "tool"       // Same, over the Model Context Protocol
	NewTool    Way = "new-tool"   // New, over the Model Context Protocol
)

func allWays() []Way { return []Way{Same, New, Key, Identifier, Tool, NewTool} }

// repeats says that the payer sends the signature again that it has.
func (w Way) repeats() bool { return w == Same || w == Tool }

func (w Way) isTool() bool { return w == Tool || w == NewTool }

// words are the way in words.
func (w Way) words() string {
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

// Promise is what a seller can promise beyond the protocol.
type Promise string

// What a seller can promise. Each promise is that a purchase which is asked for again in this
// way is charged once, and gets its answer.
const (
	PromiseSame       Promise = "same"       // the same payment is sent again
	PromiseNew        Promise = "new"        // the payer soon signs again for the same request
	PromiseKey        Promise = "key"        // Idempotency-Key names the purchase
	PromiseIdentifier Promise = "identifier" // payment-identifier names it; an offer says so
)

func allPromises() []Promise {
	return []Promise{PromiseSame, PromiseNew, PromiseKey, PromiseIdentifier}
}

// promise is what says that a purchase in this way is charged once and answered.
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
