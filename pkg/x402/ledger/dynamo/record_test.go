package dynamo

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

var exportAll = cmp.Exporter(func(reflect.Type) bool { return true })

func numeric(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }

func binaryValue(b ...byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

// encodeItem returns the item of a record.
func encodeItem(t testing.TB, r ledger.Record) item {
	t.Helper()
	it, err := New(API{}, "t").encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// packRecord returns the stored form of a record, and its JSON form.
func packRecord(t testing.TB, r ledger.Payment) (stored, doc []byte) {
	t.Helper()
	doc, _, err := ledger.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return encodeItem(t, r)["record"].(*types.AttributeValueMemberB).Value, doc //nolint:forcetypeassert // a panic fails the test
}

// TestDecodeCorrupt checks that decode reports an item as corrupt if an attribute is missing,
// has the wrong type, or disagrees with the record. An item with another key is corrupt as
// well, because it is not the requested record.
func TestDecodeCorrupt(t *testing.T) {
	t.Parallel()
	r := ledgertest.Full("k")
	other := r
	other.Key = "l"
	if got, err := decode("k", encodeItem(t, r)); got == nil || err != nil {
		t.Fatalf("decode of a sound item = %v, %v", got, err)
	}
	for name, wrong := range map[string][]types.AttributeValue{
		AttrKey: {textValue("l"), numeric("1"), nil}, "write_id": {textValue("v"), nil}, AttrState: {textValue("settled"), nil},
		"version": {numeric("2"), numeric("1.5"), numeric("1e30"), textValue("1"), nil},
		"record":  {nil, binaryValue([]byte("{}")...), encodeItem(t, other)["record"]},
		"answer":  {textValue("x"), numeric("1")},
	} {
		for _, value := range wrong {
			it := encodeItem(t, r)
			if it[name] = value; value == nil {
				delete(it, name)
			}
			if got, err := decode("k", it); got != nil || !errors.Is(err, ledger.ErrCorrupt) {
				t.Errorf("%s is %#v: decode = %v, %v; want ErrCorrupt", name, value, got, err)
			}
		}
	}
	// Wrong attributes of the index or the TTL do not make an item corrupt, because the next
	// write corrects them.
	it := encodeItem(t, r)
	it[AttrOpen], it[AttrLeaseUntil], it[AttrExpiresAt] = textValue("owed#77"), numeric("1.5e99"), textValue("x")
	got, err := decode("k", it)
	if err != nil {
		t.Fatal(err)
	}
	again := encodeItem(t, got)
	if again[AttrOpen] != nil || again[AttrLeaseUntil] != nil || !cmp.Equal(again[AttrExpiresAt], numberValue(r.ExpiresAt.Unix()), exportAll) {
		t.Errorf("written again: %v", again)
	}
}

// TestPacking checks that the dictionary with which records are compressed has not changed.
// With another dictionary, the records in existing tables could not be unpacked. The test also
// checks that unpack restores a packed record, and reports everything else as corrupt.
func TestPacking(t *testing.T) {
	t.Parallel()
	if got, want := fmt.Sprintf("%x", sha256.Sum256([]byte(dictionary))), "718b8a87e0aac2015b4556f181598e80eab175745fc74c851cec5a084a596e01"; got != want {
		t.Errorf("the dictionary is another one (%s): records that are stored cannot be read with it", got)
	}
	stored, doc := packRecord(t, ledgertest.Full("k"))
	bomb := New(API{}, "t").pack(make([]byte, maxDocument+1))
	for what, b := range map[string][]byte{
		"nothing": nil, "plain": doc, "another packing": {packFormat + 1}, "the packing alone": {packFormat}, "cut": stored[:len(stored)-1],
		"another dictionary": {packFormat, 0xff, 0xff}, "too large": bomb,
	} {
		if got, err := unpack(b); got != nil || !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: unpack = %.40q, %v; want ErrCorrupt", what, got, err)
		}
	}
	if got, err := unpack(stored); string(got) != string(doc) || err != nil {
		t.Errorf("unpack = %q, %v; want %q", got, err, doc)
	}
}

// Packed returns the attribute that stores a record with the given JSON form.
func Packed(doc string) types.AttributeValue {
	return binaryValue(New(API{}, "t").pack([]byte(doc))...)
}

// Paged sets the largest number of items in a page that a table requests.
func Paged(t *Table, size int) { t.pageSize = size }

// Dial replaces the function with which a client of HTTPClient opens connections.
func Dial(c *http.Client, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.Transport.(attempts).next.DialContext = dial //nolint:forcetypeassert // a panic fails the test
}

// FuzzDecode decodes items with any attributes. The function decode must return a record that
// agrees with the attributes, or report the item as corrupt. A record that decode returned
// must not change if it is encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for _, r := range []ledger.Payment{ledgertest.First("k"), ledgertest.Full("k")} {
		stored, doc := packRecord(f, r)
		_, body, _ := ledger.Marshal(r) // does not fail: packRecord has done the same
		f.Add("k", "1", r.WriteID, string(r.State), string(doc), body)
		f.Add("k", "1", r.WriteID, string(r.State), string(stored), body)
	}
	f.Add("k", "01", "w", "settled", `{"key":"k","version":1,"write_id":"w","state":"settled","answer":{}}`, []byte("b"))
	f.Add("k", "1e0", "w", "settled", `{"key":"k","version":1,"write_id":"w","state":"settled","terms":{}}`, []byte(nil))
	f.Add("", "", "", "", "null", []byte(nil))
	f.Fuzz(func(t *testing.T, key, version, writeID, state, doc string, body []byte) {
		it := item{AttrKey: textValue(key), "version": numeric(version), "write_id": textValue(writeID), AttrState: textValue(state)}
		if len(body) > 0 {
			it["answer"] = binaryValue(body...)
		}
		for _, record := range []types.AttributeValue{binaryValue([]byte(doc)...), Packed(doc)} { // the JSON form itself, and its packed form
			it["record"] = record
			r, err := decode(key, it)
			if err == nil {
				if head := r.Head(); head.Key != key || head.WriteID != writeID || r.Status() != state {
					t.Fatalf("decode made %q %q %q of %q %q %q", head.Key, head.WriteID, r.Status(), key, writeID, state)
				}
				checkRoundTrip(t, key, r)
			} else if !errors.Is(err, ledger.ErrCorrupt) || r != nil {
				t.Fatalf("decode = %v, %v; want ErrCorrupt", r, err)
			}
		}
	})
}

// checkRoundTrip encodes and decodes a record, and checks that it is unchanged. If encode
// refuses the record, checkRoundTrip checks nothing: such a record is too large, or has a key
// that a table cannot have.
func checkRoundTrip(t *testing.T, key string, r ledger.Record) {
	t.Helper()
	again, err := New(API{}, "t").encode(r)
	if err != nil {
		return
	}
	back, err := decode(key, again)
	// Decoding compacts the terms: the JSON is equal, but its bytes may differ.
	if diff := cmp.Diff(r, back, cmpopts.IgnoreFields(ledger.Payment{}, "Terms")); diff != "" || err != nil {
		t.Errorf("read, written and read (-first +second):\n%s%v", diff, err)
	}
}
