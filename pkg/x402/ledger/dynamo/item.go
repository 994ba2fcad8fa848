package dynamo

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The attributes of an item.
const (
	// AttrKey is the partition key (S), the record's key.
	AttrKey = dynamotable.AttrKey
	// AttrVersion is the record's version (N), the fencing token that the
	// condition of Replace compares.
	AttrVersion = "version"
	// AttrWriteID names the write that left the item as it is (S).
	AttrWriteID = "write_id"
	// AttrState is the record's state (S), for operators. It is a reserved
	// word: expressions need a placeholder for it.
	AttrState = "state"
	// AttrRecord is the record's JSON form, packed (B).
	AttrRecord = "record"
	// AttrAnswer is the body of the answer (B), absent when there is none.
	AttrAnswer = "answer"
	// AttrOpen is the partition key of the index (S), "open#<shard>" or
	// "owed#<shard>"; absent in a record that is over, which is then not in the
	// index. A reserved word too.
	AttrOpen = "open"
	// AttrLeaseUntil is the sort key of the index (N, unix milliseconds of the
	// record's OpenedAt, rounded up), there when AttrOpen is.
	AttrLeaseUntil = "lease_until"
	// AttrExpiresAt is the TTL (N, unix seconds). DynamoDB deletes late, so
	// the time in the record decides. Absent when the record has none.
	AttrExpiresAt = dynamotable.AttrExpiresAt
)

const (
	// maxItem is DynamoDB's limit: 400 KB for names and values together.
	maxItem = 400 << 10
	// maxKey is DynamoDB's limit for a partition key.
	maxKey = 2048
	// numberSize is the most that a number takes (38 digits, two to a byte,
	// and the exponent).
	numberSize = 21
)

// ErrTooLarge says that a record does not fit into one item. Nothing was sent.
var ErrTooLarge = errors.New("dynamo: the item would be larger than 400 KB")

type item = map[string]types.AttributeValue

// encode turns a record into the whole item. It refuses what DynamoDB would
// refuse, and what decode could not read back: a row that its own writer calls
// corrupt would hold somebody's money.
func (p *packer) encode(r ledger.Record) (item, error) {
	if err := checkKey(r.Key); err != nil {
		return nil, err
	}
	doc, body, err := r.Marshal()
	if err != nil {
		return nil, err
	}
	if len(doc) > maxItem {
		return nil, fmt.Errorf("%w: a record of %d bytes", ErrTooLarge, len(doc))
	}
	packed, err := p.pack(doc)
	if err != nil {
		return nil, err
	}
	it := item{
		AttrKey:     &types.AttributeValueMemberS{Value: r.Key},
		AttrVersion: number(r.Version),
		AttrWriteID: &types.AttributeValueMemberS{Value: r.WriteID},
		AttrState:   &types.AttributeValueMemberS{Value: string(r.State)},
		AttrRecord:  packed,
	}
	if len(body) > 0 {
		it[AttrAnswer] = &types.AttributeValueMemberB{Value: body}
	}
	if !r.ExpiresAt.IsZero() {
		it[AttrExpiresAt] = number(r.ExpiresAt.Unix())
	}
	if place, ok := placeOf(r); ok {
		it[AttrOpen] = &types.AttributeValueMemberS{Value: place}
		it[AttrLeaseUntil] = number(ceilMilli(r.OpenedAt()))
	}
	if n := size(it); n > maxItem {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
	}
	if _, err := decode(r.Key, it); err != nil {
		// Not %w: nothing that is stored is corrupt.
		return nil, fmt.Errorf("dynamo: refusing to write what could not be read back: %v", err) //nolint:errorlint // nothing stored is corrupt
	}
	return it, nil
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
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
	pk, okKey := it[AttrKey].(*types.AttributeValueMemberS)
	version, okVersion := it[AttrVersion].(*types.AttributeValueMemberN)
	writeID, okWriteID := it[AttrWriteID].(*types.AttributeValueMemberS)
	state, okState := it[AttrState].(*types.AttributeValueMemberS)
	if !okKey || !okVersion || !okWriteID || !okState {
		return nil, fmt.Errorf("%w: an attribute is missing or of another type", ledger.ErrCorrupt)
	}
	doc, err := Unpack(it[AttrRecord])
	if err != nil {
		return nil, err
	}
	var body []byte
	if answer, ok := it[AttrAnswer]; ok {
		b, ok := answer.(*types.AttributeValueMemberB)
		if !ok {
			return nil, fmt.Errorf("%w: attribute %s is not binary", ledger.ErrCorrupt, AttrAnswer)
		}
		body = b.Value
	}
	r, err := ledger.Unmarshal(doc, body)
	if err != nil {
		return nil, err
	}
	switch n, err := strconv.ParseInt(version.Value, 10, 64); {
	case err != nil || n != r.Version:
		return nil, disagree(AttrVersion)
	case r.Key != key || pk.Value != key:
		return nil, disagree(AttrKey)
	case writeID.Value != r.WriteID:
		return nil, disagree(AttrWriteID)
	case state.Value != string(r.State):
		return nil, disagree(AttrState)
	}
	return r, nil
}

func disagree(attr string) error {
	return fmt.Errorf("%w: attribute %s and the record disagree", ledger.ErrCorrupt, attr)
}

// size is what DynamoDB counts against its limit, never less.
func size(it item) int {
	n := 0
	for name, value := range it {
		n += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			n += len(v.Value)
		case *types.AttributeValueMemberB:
			n += len(v.Value)
		case *types.AttributeValueMemberN:
			n += numberSize
		}
	}
	return n
}
