package dynamo

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// CheckSize tells whether a Store would send the record.
func CheckSize(r ledger.Record) error {
	_, err := encode(r)
	return err
}

// The count against a known sum: names and values, numbers at their most.
func TestSize(t *testing.T) {
	t.Parallel()
	it := item{
		"pk":     &types.AttributeValueMemberS{Value: "é"},                    // 2 + 2
		"answer": &types.AttributeValueMemberB{Value: make([]byte, 10)},       // 6 + 10
		"n":      &types.AttributeValueMemberN{Value: strings.Repeat("9", 3)}, // 1 + 21
	}
	if n := size(it); n != 42 {
		t.Errorf("size = %d, want 42", n)
	}
}

// An item of another key is not the record that was asked for.
func TestDecodeAnotherKey(t *testing.T) {
	t.Parallel()
	r := ledgertest.First("k")
	for what, spoil := range map[string]func(item){
		"item":      func(it item) { it[AttrKey] = &types.AttributeValueMemberS{Value: "l"} },
		"attribute": func(it item) { it[AttrKey] = &types.AttributeValueMemberN{Value: "1"} },
		"no key":    func(it item) { delete(it, AttrKey) },
	} {
		it, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		spoil(it)
		if got, err := decode("k", it); got != nil || !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: decode = %v, %v; want ErrCorrupt", what, got, err)
		}
	}
}

// Whatever an item holds, decode reads what encode wrote or calls it corrupt.
func FuzzDecode(f *testing.F) {
	for _, r := range []ledger.Record{ledgertest.First("k"), ledgertest.Full("k")} {
		doc, body, err := r.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add("k", "1", r.WriteID, string(r.State), string(doc), body)
	}
	f.Add("k", "1", "w", "settled", `{"key":"k","version":1,"write_id":"w","state":"settled"}`, []byte(nil))
	f.Add("k", "01", "w", "settled", `{"key":"k","version":1,"write_id":"w","state":"settled","answer":{}}`, []byte("b"))
	f.Fuzz(func(t *testing.T, key, version, writeID, state, doc string, body []byte) {
		it := item{
			AttrKey:     &types.AttributeValueMemberS{Value: key},
			AttrVersion: &types.AttributeValueMemberN{Value: version},
			AttrWriteID: &types.AttributeValueMemberS{Value: writeID},
			AttrState:   &types.AttributeValueMemberS{Value: state},
			AttrRecord:  &types.AttributeValueMemberS{Value: doc},
		}
		if len(body) > 0 {
			it[AttrAnswer] = &types.AttributeValueMemberB{Value: body}
		}
		r, err := decode(key, it)
		if err != nil {
			if !errors.Is(err, ledger.ErrCorrupt) || r != nil {
				t.Fatalf("decode = %v, %v; want ErrCorrupt", r, err)
			}
			return
		}
		if r.Key != key || r.WriteID != writeID || string(r.State) != state {
			t.Fatalf("decode made %q %q %q of %q %q %q", r.Key, r.WriteID, r.State, key, writeID, state)
		}
		again, err := encode(*r)
		if err != nil {
			return // too large, or a key that the table cannot have
		}
		back, err := decode(key, again)
		if err != nil {
			t.Fatalf("what was read and written again: %v", err)
		}
		// The terms come back compact: equal JSON, perhaps other bytes.
		if diff := cmp.Diff(r, back, cmpopts.IgnoreFields(ledger.Record{}, "Terms")); diff != "" {
			t.Errorf("read, written and read (-first +second):\n%s", diff)
		}
	})
}
