package judge

import (
	"fmt"
	"slices"
)

// Verdict says whether a seller handled one purchase correctly.
type Verdict string

// The verdicts.
const (
	Held        Verdict = "held"         // the purchase was charged once and answered, or neither happened and that is correct in this row
	Broken      Verdict = "broken"       // the seller broke the protocol or one of its promises
	NotPromised Verdict = "not promised" // something went wrong, but the seller has made no promise against it
)

// Case is the result of one purchase.
type Case struct {
	Way Way `json:"way"`
	// Transfers is how often the payer was charged, as the chain shows. Requests is one, or
	// two in the row in which the payer sends two requests at once. Answers is how many of
	// these requests got the answer.
	Transfers int `json:"transfers"`
	Requests  int `json:"requests"`
	Answers   int `json:"answers"`
	// Unpaid is the number of answers that the payer got although there was no transfer.
	// Stranger is the number of answers that a stranger got. Another is the number of answers
	// to a different question that were given for the same payment.
	Unpaid   int `json:"unpaid"`
	Stranger int `json:"stranger"`
	Another  int `json:"another"`
	// Said is the seller's last statement: the status, the receipt, and whether the seller
	// charged.
	Said    string  `json:"said"`
	Verdict Verdict `json:"verdict"`
	// By is the rule that the verdict is based on: the protocol, the seller's own statement about
	// the money, or a promise.
	By string `json:"by,omitempty"`
	// Why says what went wrong; it is empty if nothing went wrong.
	Why string `json:"why,omitempty"`
	// Steps say what happened, in order.
	Steps []string `json:"steps"`
}

// Values of Case.By, if the verdict is not based on a promise.
const (
	byProtocol = "the protocol"
	byWord     = "its own word"
)

// judge returns the result of a purchase after the row has been played.
func (p *purchase) judge() Case {
	said := p.lastStatement()
	p.mu.Lock()
	defer p.mu.Unlock()
	c := Case{
		Way: p.way, Transfers: len(p.transfers), Requests: p.errands, Answers: p.answeredErrands,
		Stranger: p.strangerAnswers, Another: p.otherAnswers, Said: said, Steps: slices.Clone(p.steps),
	}
	if c.Transfers == 0 {
		c.Unpaid = c.Answers
	}
	c.decide(p)
	return c
}

// decide sets Verdict, By and Why, from the other fields of c and from the purchase.
func (c *Case) decide(p *purchase) {
	c.Verdict = Held
	promise := p.way.promise()
	switch {
	case c.Unpaid > 0:
		c.setBroken(byProtocol, "it answered, and no money moved")
	case c.Stranger > 0:
		c.setBroken(byProtocol, "a stranger got the answer for a copy of what is on the chain")
	case c.Another > 0:
		c.setBroken(byProtocol, "it answered another question for the same money")
	case p.falseStatement != "":
		c.setBroken(byWord, p.falseStatement)
	case p.stage.row.movesNoMoney:
	case c.Transfers > 1:
		c.judgeFailure(p, promise, fmt.Sprintf("charged %d times", c.Transfers))
	case c.Answers < c.Requests && c.Transfers > 0:
		c.judgeFailure(p, promise, "paid, and not answered")
	case c.Answers < c.Requests:
		c.judgeFailure(p, promise, "it could not be bought")
	}
}

func (c *Case) setBroken(by, why string) {
	c.Verdict = Broken
	c.By = by
	c.Why = why
}

// judgeFailure sets the verdict for a failure such as a second charge. In a row in which
// nothing fails, the protocol forbids such a failure. In the other rows, only a promise
// forbids it.
func (c *Case) judgeFailure(p *purchase, promise Promise, why string) {
	switch {
	case p.stage.row.isFaultless:
		c.setBroken(byProtocol, why)
	case slices.Contains(p.stage.court.promises(), promise):
		c.setBroken("the promise "+string(promise), why)
	default:
		c.Verdict = NotPromised
		c.By = "no promise"
		c.Why = why
	}
}
