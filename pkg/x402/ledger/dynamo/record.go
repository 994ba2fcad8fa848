package dynamo

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxDocument is far above the JSON form of any record.
const maxDocument = 400 << 10

// storedRecord is what is read of the item of a record, with the attributes of the
// constants in doc.go. The record itself is packed; the other attributes repeat what
// conditions and operators go by.
type storedRecord struct {
	Key     string       `dynamodbav:"pk"`
	Version int64        `dynamodbav:"version"`
	WriteID string       `dynamodbav:"write_id"`
	State   ledger.State `dynamodbav:"state"`
	Record  []byte       `dynamodbav:"record"`
	Answer  []byte       `dynamodbav:"answer,omitempty"`
}

// recordItem is the whole item. The attributes of the TTL and the index are made anew by
// every write, and a wrong one costs nobody an answer.
type recordItem struct {
	storedRecord
	ExpiresAt  int64  `dynamodbav:"expires_at,omitempty"`
	Open       string `dynamodbav:"open,omitempty"`
	LeaseUntil int64  `dynamodbav:"lease_until,omitempty"`
}

// encode turns a record into the whole item.
func (t *Table) encode(r ledger.Record) (item, error) {
	doc, body, err := r.Marshal()
	if err != nil {
		return nil, err
	}
	w := recordItem{storedRecord: storedRecord{r.Key, r.Version, r.WriteID, r.State, t.pack(doc), body}}
	if !r.ExpiresAt.IsZero() {
		w.ExpiresAt = r.ExpiresAt.Unix()
	}
	if list := r.ListedIn(); list != "" {
		w.Open, w.LeaseUntil = partition(list, shardOf(r.Key)), ceilMilli(r.ListedAt())
	}
	it, err := attributevalue.MarshalMap(w)
	if err != nil {
		return nil, fmt.Errorf("dynamo: encode record: %w", err)
	}
	return it, nil
}

// decode reads the item stored under key. Its attributes must say what the record says.
func decode(key string, it item) (*ledger.Record, error) {
	var stored storedRecord
	if err := read(it, &stored); err != nil {
		return nil, err
	}
	doc, err := unpack(stored.Record)
	if err != nil {
		return nil, err
	}
	r, err := ledger.Unmarshal(key, doc, stored.Answer)
	if err != nil {
		return nil, err
	}
	if stored.Key != key || stored.Version != r.Version || stored.WriteID != r.WriteID || stored.State != r.State {
		return nil, fmt.Errorf("%w: the key, version, write id or state of the item is not that of its record", ledger.ErrCorrupt)
	}
	return r, nil
}

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

// newCompressor returns what packs records. It is large, and kept from one to the next.
func newCompressor() any {
	w, _ := flate.NewWriterDict(nil, flate.DefaultCompression, []byte(dictionary)) // fails for another level only
	return w
}

// pack returns what the table keeps of the JSON form of a record.
func (t *Table) pack(doc []byte) []byte {
	w := t.compressors.Get().(*flate.Writer) //nolint:forcetypeassert // the pool has nothing else
	defer t.compressors.Put(w)
	b := bytes.NewBuffer([]byte{packing})
	w.Reset(b)
	_, _ = w.Write(doc) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// unpack returns the JSON form of a record, of the value of AttrRecord.
func unpack(packed []byte) ([]byte, error) {
	if len(packed) == 0 || packed[0] != packing {
		return nil, fmt.Errorf("%w: the record is not packed in a way that is known here", ledger.ErrCorrupt)
	}
	doc, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(bytes.NewReader(packed[1:]), []byte(dictionary)), maxDocument+1))
	if err == nil && len(doc) > maxDocument {
		err = fmt.Errorf("more than %d bytes", maxDocument)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: unpack record: %w", ledger.ErrCorrupt, err)
	}
	return doc, nil
}
