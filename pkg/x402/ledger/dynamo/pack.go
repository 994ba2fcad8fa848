package dynamo

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// DynamoDB charges a write by whole kilobytes of the item. A record's JSON form
// has about 1.7 KB, most of it hexadecimal digits and the same field names every
// time. Compressed with a preset dictionary it has a third of that, so that a
// claim and a settlement cost one write unit each, and not two.

// packing is the first byte of a packed record: DEFLATE (RFC 1951) with the
// preset dictionary below.
const packing = 1

// dictionary is what most records have in common. It must never change: what is
// in the table was packed with it. Another one needs another packing.
const dictionary = `"last_fault":{"code":"","message":""},"refusals":1,"refused_at":"","disproved":true,` +
	`"doubt":true,"sent":true,"reason":"an earlier attempt ended without a verdict","owner":"` +
	`supersededboughtuncertainrefused"owed":["],"reason":"no evidence yet",` +
	`"asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","extra":{"name":"USDC"` +
	`|0x036cbd53842c5426634e7929541ec2318f3dcf7e|"network":"eip155:84532"` +
	`{"key":"purchase|eip155:8453|0x833589fcd6edb6e08f4c7c32d4f71b54bda02913|0x","version":5,"write_id":"` +
	`","state":"redeemed","settled","settling","auth_digest":"","sig_digest":"","request":"",` +
	`"terms":{"scheme":"exact","network":"eip155:8453","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",` +
	`"amount":"5000","payTo":"0x","maxTimeoutSeconds":300,"extra":{"name":"USD Coin","version":"2","paymentFlow":"upfront"}},` +
	`"payload":{"signature":"0x","authorization":{"from":"0x","to":"0x","value":"5000","validAfter":"0","validBefore":"17` +
	`","nonce":"0x"}},"proof":{"token":"","key":""},` +
	`"purchase":"purchase|eip155:8453|0x833589fcd6edb6e08f4c7c32d4f71b54bda02913|0x|request:|key:` +
	`","attempt":1,"lease_until":"2026-11-22T12:00:00.123456789Z","transaction":"0x",` +
	`"receipt":{"transaction":"0x","payer":"0x","network":"eip155:8453"},"lookups":1,"lookup_at":"2026-` +
	`","answer":{"status":200,"encoding":"gzip","stored":true},"valid_before":"2026-` +
	`","created_at":"2026-11-22T12:00:00.123456789Z","updated_at":"2026-","settled_at":"2026-","answered_at":"2026-","expires_at":"2026-"}`

// packer turns the JSON form of a record into what the table keeps of it. It
// keeps its compressors, which are large, from one record to the next.
type packer struct{ free sync.Pool }

func newPacker() *packer {
	return &packer{free: sync.Pool{New: func() any {
		w, _ := flate.NewWriterDict(nil, flate.DefaultCompression, []byte(dictionary)) // fails for another level only
		return w
	}}}
}

func (p *packer) pack(doc []byte) (types.AttributeValue, error) {
	w := p.free.Get().(*flate.Writer) //nolint:forcetypeassert // the pool has nothing else
	defer p.free.Put(w)
	var b bytes.Buffer
	b.WriteByte(packing)
	w.Reset(&b)
	if _, err := w.Write(doc); err != nil {
		return nil, fmt.Errorf("dynamo: pack record: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("dynamo: pack record: %w", err)
	}
	return &types.AttributeValueMemberB{Value: b.Bytes()}, nil
}

// Unpack returns the JSON form of a record, of the value of AttrRecord. A row of
// an earlier version of this code has it as it is.
func Unpack(v types.AttributeValue) ([]byte, error) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return []byte(v.Value), nil
	case *types.AttributeValueMemberB:
		if len(v.Value) == 0 || v.Value[0] != packing {
			return nil, fmt.Errorf("%w: the record is packed in no way that is known here", ledger.ErrCorrupt)
		}
		doc, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(bytes.NewReader(v.Value[1:]), []byte(dictionary)), maxItem+1))
		if err != nil {
			return nil, fmt.Errorf("%w: unpack record: %w", ledger.ErrCorrupt, err)
		}
		if len(doc) > maxItem {
			return nil, fmt.Errorf("%w: unpack record: more than %d bytes", ledger.ErrCorrupt, maxItem)
		}
		return doc, nil
	}
	return nil, fmt.Errorf("%w: attribute %s is missing or of another type", ledger.ErrCorrupt, AttrRecord)
}
