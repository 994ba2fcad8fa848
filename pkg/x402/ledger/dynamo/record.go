package dynamo

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

const (
	// maxItem is DynamoDB's limit: 400 KB for names and values together.
	maxItem = 400 << 10
	// overhead is more than the names, numbers and placement of an item take of it.
	overhead = 256
	// maxKey is DynamoDB's limit for a partition key.
	maxKey = 2048
)

// recordItem is the item of a record, with the attributes of the constants in doc.go. The
// record itself is packed; the other attributes repeat what conditions, the index, the
// TTL and operators go by.
type recordItem struct {
	Key        string       `dynamodbav:"pk"`
	Version    int64        `dynamodbav:"version"`
	WriteID    string       `dynamodbav:"write_id"`
	State      ledger.State `dynamodbav:"state"`
	Record     []byte       `dynamodbav:"record"`
	Answer     []byte       `dynamodbav:"answer,omitempty"`
	ExpiresAt  int64        `dynamodbav:"expires_at,omitempty"`
	Open       string       `dynamodbav:"open,omitempty"`
	LeaseUntil int64        `dynamodbav:"lease_until,omitempty"`
}

// encode turns a record into the whole item. It refuses what DynamoDB would refuse.
func (p *packer) encode(r ledger.Record) (item, error) {
	if err := checkKey(r.Key); err != nil {
		return nil, err
	}
	doc, body, err := r.Marshal()
	if err != nil {
		return nil, err
	}
	packed, err := p.pack(doc)
	if err != nil {
		return nil, err
	}
	if n := overhead + len(r.Key) + len(r.WriteID) + len(packed) + len(body); n > maxItem || len(doc) > maxItem {
		return nil, fmt.Errorf("%w: %d bytes, with a record of %d", ErrTooLarge, n, len(doc))
	}
	w := recordItem{Key: r.Key, Version: r.Version, WriteID: r.WriteID, State: r.State, Record: packed, Answer: body}
	if !r.ExpiresAt.IsZero() {
		w.ExpiresAt = r.ExpiresAt.Unix()
	}
	if place, ok := placeOf(r); ok {
		w.Open, w.LeaseUntil = place, ceilMilli(r.ListedAt())
	}
	it, err := attributevalue.MarshalMap(w)
	if err != nil {
		return nil, fmt.Errorf("dynamo: encode record: %w", err)
	}
	return it, nil
}

// checkKey refuses what cannot be a key. Bytes that are not UTF-8 would become
// another key on the wire.
func checkKey(key string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
		return fmt.Errorf("dynamo: a key is 1 to %d bytes of UTF-8, not %d bytes %.80q", maxKey, len(key), key)
	}
	return nil
}

// decode reads the item stored under key. The attributes that conditions and
// operators go by must say what the record says. Those of the TTL and the index
// are hints, made anew by every write: a wrong one costs nobody an answer.
func decode(key string, it item) (*ledger.Record, error) {
	var stored struct { // without the hints
		Key     string       `dynamodbav:"pk"`
		Version int64        `dynamodbav:"version"`
		WriteID string       `dynamodbav:"write_id"`
		State   ledger.State `dynamodbav:"state"`
		Record  []byte       `dynamodbav:"record"`
		Answer  []byte       `dynamodbav:"answer"`
	}
	if err := read(it, &stored); err != nil {
		return nil, err
	}
	doc, err := Unpack(stored.Record)
	if err != nil {
		return nil, err
	}
	r, err := ledger.Unmarshal(doc, stored.Answer)
	if err != nil {
		return nil, err
	}
	if r.Key != key || stored.Key != key || stored.Version != r.Version || stored.WriteID != r.WriteID || stored.State != r.State {
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

// packer turns the JSON form of a record into what the table keeps of it. It
// keeps its compressors, which are large, from one record to the next.
type packer struct{ free sync.Pool }

func newPacker() *packer {
	return &packer{free: sync.Pool{New: func() any {
		w, _ := flate.NewWriterDict(nil, flate.DefaultCompression, []byte(dictionary)) // fails for another level only
		return w
	}}}
}

func (p *packer) pack(doc []byte) ([]byte, error) {
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
	return b.Bytes(), nil
}

// Unpack returns the JSON form of a record, of the value of AttrRecord.
func Unpack(packed []byte) ([]byte, error) {
	if len(packed) == 0 || packed[0] != packing {
		return nil, fmt.Errorf("%w: the record is not packed in a way that is known here", ledger.ErrCorrupt)
	}
	doc, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(bytes.NewReader(packed[1:]), []byte(dictionary)), maxItem+1))
	if err != nil {
		return nil, fmt.Errorf("%w: unpack record: %w", ledger.ErrCorrupt, err)
	}
	if len(doc) > maxItem {
		return nil, fmt.Errorf("%w: unpack record: more than %d bytes", ledger.ErrCorrupt, maxItem)
	}
	return doc, nil
}
