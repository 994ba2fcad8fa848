package judge

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// outsiderTries is the largest number of requests of an outsider. The number is large because
// an outsider may ask again sooner than the seller wants, and a seller may work on a payment
// for half a minute.
const outsiderTries = 60

// runOutsider runs the external program that buys, and records whether the program has the
// answer.
func (p *purchase) runOutsider(ctx context.Context) {
	order := Order{
		Goods: p.buyer.goods, Origin: p.buyer.origin, Network: p.stage.court.config.World.Network, Key: p.key, Tries: outsiderTries,
	}
	if p.stage.row.movesNoMoney {
		order.Tries = p.stage.row.failureLimit()
	}
	answered, err := p.outsider.Buy(ctx, order)
	if err != nil {
		p.note("the program fails: %s", printable(err.Error()))
	}
	if !answered {
		p.note("the program has no answer")
		return
	}
	p.note("the program has the answer")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answeredErrands++
}

// noteOutsiderPayment notes the payment that an outsider sends. The outsider does not report
// its payments, so the type line calls this method when a request passes.
func (p *purchase) noteOutsiderPayment(r *http.Request, body []byte) {
	if p.outsider != nil {
		p.note("the payer sends %s", p.paymentName(nonceOf(r, body)))
	}
}

// noteOutsiderReply notes the seller's reply to an outsider.
func (p *purchase) noteOutsiderReply(r *http.Request, body []byte, said reply) {
	if p.outsider == nil {
		return
	}
	p.recordStatement(said, nonceOf(r, body))
	if said.kind() == kindWait {
		p.tell("the seller says %s", said.statement().text)
		return
	}
	p.note("the seller says %s", said.statement().text)
}

// nonceOf returns the nonce of the payment in a request. It is empty if the payment cannot be
// read.
func nonceOf(r *http.Request, body []byte) string {
	raw, err := decodeHeader(r.Header.Get(x402.HeaderSignature))
	if err != nil {
		var message struct {
			Params struct {
				Meta map[string]json.RawMessage `json:"_meta"`
			} `json:"params"`
		}
		if json.Unmarshal(body, &message) != nil {
			return ""
		}
		raw = message.Params.Meta[metaPayment]
	}
	var payload x402.Payload
	if json.Unmarshal(raw, &payload) != nil {
		return ""
	}
	return payload.Payload.Authorization.Nonce
}
