package judge

import (
	"fmt"
	"slices"
)

// Verdict is what a seller is told about one purchase.
type Verdict string

// The verdicts.
const (
	Held        Verdict = "held"         // charged once and answered, or neither where that is right
	Broken      Verdict = "broken"       // against the protocol, or against what the seller promised
	NotPromised Verdict = "not promised" // it went wrong, and nobody had promised otherwise
)

// Case is what became of one purchase.
type Case struct {
	Way Way `json:"way"`
	// Transfers is how often the payer was charged, by the truth of the chain. Requests is
	// how many wanted the answer, and Answers how many of them got it.
	Transfers int `json:"transfers"`
	Requests  int `json:"requests"`
	Answers   int `json:"answers"`
	// Unpaid are answers without any transfer, Stranger those that a stranger has got, and
	// Another those to another question, for the same money.
	Unpaid   int `json:"unpaid"`
	Stranger int `json:"stranger"`
	Another  int `json:"another"`
	// Said is what the seller said last: the status, the receipt, and whether it charged.
	Said    string  `json:"said"`
	Verdict Verdict `json:"verdict"`
	// By is what it was judged by: the protocol, the seller's own word, or a promise.
	By string `json:"by,omitempty"`
	// Why is what went wrong; empty where nothing did.
	Why string `json:"why,omitempty"`
	// Steps are what happened, in order.
	Steps []string `json:"steps"`
}

// What a purchase is judged by, if not by a promise.
const (
	byProtocol = "the protocol"
	byWord     = "its own word"
)

// judge judges a purchase when the day is over.
func (p *purchase) judge() Case {
	said := p.said()
	p.mu.Lock()
	defer p.mu.Unlock()
	c := Case{
		Way: p.way, Transfers: len(p.transfers), Requests: p.requests, Answers: p.answered,
		Stranger: p.stranger, Another: p.another, Said: said, Steps: slices.Clone(p.steps),
	}
	if c.Transfers == 0 {
		c.Unpaid = c.Answers
	}
	c.decide(p)
	return c
}

// decide reads the verdict from the facts.
func (c *Case) decide(p *purchase) {
	c.Verdict = Held
	promise := p.way.promise()
	switch {
	case c.Unpaid > 0:
		c.broken(byProtocol, "it answered, and no money moved")
	case c.Stranger > 0:
		c.broken(byProtocol, "a stranger got the answer for a copy of what is on the chain")
	case c.Another > 0:
		c.broken(byProtocol, "it answered another question for the same money")
	case p.falseWord != "":
		c.broken(byWord, p.falseWord)
	case p.stage.row.nothing:
	case c.Transfers > 1:
		c.wrong(p, promise, fmt.Sprintf("charged %d times", c.Transfers))
	case c.Answers < c.Requests && c.Transfers > 0:
		c.wrong(p, promise, "paid, and not answered")
	case c.Answers < c.Requests:
		c.wrong(p, promise, "it could not be bought")
	}
}

func (c *Case) broken(by, why string) {
	c.Verdict = Broken
	c.By = by
	c.Why = why
}

// wrong judges what only a promise forbids, unless nothing failed.
func (c *Case) wrong(p *purchase, promise Promise, why string) {
	switch {
	case p.stage.row.plain:
		c.broken(byProtocol, why)
	case slices.Contains(p.stage.court.promises(), promise):
		c.broken("the promise "+string(promise), why)
	default:
		c.Verdict = NotPromised
		c.By = "no promise"
		c.Why = why
	}
}
