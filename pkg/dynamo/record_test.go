package dynamo

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// CheckSize tells whether a Ledger would send the record.
func CheckSize(r ledger.Record) error {
	_, err := newPacker().encode(r)
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

// An item whose attributes and record disagree is corrupt, whatever reads it. So is
// one of another key: it is not the record that was asked for.
func TestDecodeCorrupt(t *testing.T) {
	t.Parallel()
	numeric := func(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }
	r := ledgertest.Full("k")
	other := r
	other.Key = "l"
	whole := func(r ledger.Record) item {
		it, err := newPacker().encode(r)
		if err != nil {
			t.Fatal(err)
		}
		return it
	}
	if got, err := decode("k", whole(r)); got == nil || err != nil {
		t.Fatalf("decode of a sound item = %v, %v", got, err)
	}
	for what, spoil := range map[string]func(item){
		"another key":         func(it item) { it[AttrKey] = text("l") },
		"key as a number":     func(it item) { it[AttrKey] = numeric("1") },
		"no key":              func(it item) { delete(it, AttrKey) },
		"another version":     func(it item) { it[AttrVersion] = numeric("2") },
		"half a version":      func(it item) { it[AttrVersion] = numeric("1.5") },
		"a huge version":      func(it item) { it[AttrVersion] = numeric("1e30") },
		"version as text":     func(it item) { it[AttrVersion] = text("1") },
		"no version":          func(it item) { delete(it, AttrVersion) },
		"another write id":    func(it item) { it[AttrWriteID] = text("v") },
		"no write id":         func(it item) { delete(it, AttrWriteID) },
		"another state":       func(it item) { it[AttrState] = text("settled") },
		"no state":            func(it item) { delete(it, AttrState) },
		"no record":           func(it item) { delete(it, AttrRecord) },
		"record as bytes":     func(it item) { it[AttrRecord] = binary([]byte("{}")...) },
		"record of another":   func(it item) { it[AttrRecord] = whole(other)[AttrRecord] },
		"answer as text":      func(it item) { it[AttrAnswer] = text("x") },
		"answer that is null": func(it item) { it[AttrAnswer] = &types.AttributeValueMemberNULL{Value: true} },
	} {
		it := whole(r)
		spoil(it)
		if got, err := decode("k", it); got != nil || !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: decode = %v, %v; want ErrCorrupt", what, got, err)
		}
	}
}

// The index attributes say what the record says, in every state, and survive
// being read and written.
func TestIndexAttributes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	lists := map[ledger.State]string{ledger.Settling: "open", ledger.Uncertain: "open", ledger.Settled: "owed"}
	for _, state := range ledger.States() {
		for name, c := range map[string]struct{ lease, updated, want time.Time }{
			"leased":       {at.Add(time.Minute), at, at.Add(time.Minute)},
			"lease over":   {at.Add(-time.Minute), at, at},
			"released":     {time.Time{}, at, at},
			"a nanosecond": {at.Add(time.Nanosecond), at, at.Add(time.Millisecond)},
		} {
			r := ledgertest.First("eip155:8453|0xa|0xb|0x01")
			r.State, r.LeaseUntil, r.UpdatedAt = state, c.lease, c.updated
			it, err := newPacker().encode(r)
			if err != nil {
				t.Fatal(err)
			}
			var open, until types.AttributeValue
			if list, ok := lists[state]; ok {
				if c.lease.After(c.updated) {
					list = "open"
				}
				open = &types.AttributeValueMemberS{Value: list + "#" + strconv.Itoa(shardOf(r.Key))}
				until = &types.AttributeValueMemberN{Value: strconv.FormatInt(c.want.UnixMilli(), 10)}
			}
			all := cmp.Exporter(func(reflect.Type) bool { return true })
			if diff := cmp.Diff([]types.AttributeValue{open, until}, []types.AttributeValue{it[AttrOpen], it[AttrLeaseUntil]}, all); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", state, name, diff)
			}
			back, err := decode(r.Key, it)
			if err != nil {
				t.Fatal(err)
			}
			again, err := newPacker().encode(*back)
			if diff := cmp.Diff(it, again, all); diff != "" || err != nil {
				t.Errorf("%s, %s, read and written (-first +second), %v:\n%s", state, name, err, diff)
			}
		}
	}
}

// What is in a table was packed with the dictionary of its time.
func TestPacking(t *testing.T) {
	t.Parallel()
	if got, want := fmt.Sprintf("%x", sha256.Sum256([]byte(dictionary))), "718b8a87e0aac2015b4556f181598e80eab175745fc74c851cec5a084a596e01"; got != want {
		t.Errorf("the dictionary is another one (%s): records that are stored cannot be read with it", got)
	}
	r := ledgertest.Full("k")
	doc, _, err := r.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := newPacker().pack(doc)
	if err != nil {
		t.Fatal(err)
	}
	whole := packed.(*types.AttributeValueMemberB).Value //nolint:forcetypeassert // a failed test
	var bomb bytes.Buffer
	bomb.WriteByte(packing)
	w, err := flate.NewWriterDict(&bomb, flate.BestCompression, []byte(dictionary))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, maxItem+1)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]types.AttributeValue{
		"nothing": nil, "a number": number(1), "no bytes": binary(), "another packing": binary(packing + 1),
		"the packing alone": binary(packing), "cut": binary(whole[:len(whole)-1]...),
		"another dictionary": binary(append([]byte{packing}, 0xff, 0xff)...), "too large": binary(bomb.Bytes()...),
	} {
		if got, err := Unpack(v); got != nil || !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: Unpack = %.40q, %v; want ErrCorrupt", what, got, err)
		}
	}
	for what, v := range map[string]types.AttributeValue{"packed": packed, "of the first version": &types.AttributeValueMemberS{Value: string(doc)}} {
		if got, err := Unpack(v); string(got) != string(doc) || err != nil {
			t.Errorf("%s: Unpack = %q, %v; want %q", what, got, err, doc)
		}
	}
}

func binary(b ...byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

// Where a key belongs is written in every table: it must never change. And all
// partitions are used.
func TestShards(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{"k": 10, "bare": 13, "owed": 10, "eip155:8453|0xa|0xb|0x01": 0} {
		if got := shardOf(key); got != want {
			t.Errorf("%q is in partition %d, was %d", key, got, want)
		}
	}
	var counts [shards]int
	for i := range 1600 {
		counts[shardOf(fmt.Sprintf("eip155:8453|0xa|0xb|%064x", i))]++
	}
	for i, n := range counts {
		if n < 50 || n > 200 {
			t.Errorf("partition %d holds %d of 1,600 keys", i, n)
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
		packed, err := newPacker().pack(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("k", "1", r.WriteID, string(r.State), string(packed.(*types.AttributeValueMemberB).Value), body) //nolint:forcetypeassert // see pack
	}
	f.Add("k", "1", "w", "settled", `{"key":"k","version":1,"write_id":"w","state":"settled"}`, []byte(nil))
	f.Add("k", "01", "w", "settled", `{"key":"k","version":1,"write_id":"w","state":"settled","answer":{}}`, []byte("b"))
	sound := `{"key":"k","version":1,"write_id":"w","state":"settled","terms":{},"created_at":"2026-11-01T12:00:00Z"}`
	for _, v := range [][5]string{
		{"k", "1", "w", "settled", sound}, {"k", "2", "w", "settled", sound}, {"k", "1", "v", "settled", sound},
		{"k", "1", "w", "refused", sound}, {"l", "1", "w", "settled", sound}, {"k", "1e0", "w", "settled", sound},
		{"k", "1", "w", "settled", sound[:40]}, {"", "", "", "", "null"},
	} {
		f.Add(v[0], v[1], v[2], v[3], v[4], []byte(nil))
	}
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
		it[AttrRecord] = binary([]byte(doc)...)
		if r, err := decode(key, it); err != nil && (!errors.Is(err, ledger.ErrCorrupt) || r != nil) {
			t.Fatalf("decode of a packed record = %v, %v; want ErrCorrupt", r, err)
		}
		if err != nil {
			if !errors.Is(err, ledger.ErrCorrupt) || r != nil {
				t.Fatalf("decode = %v, %v; want ErrCorrupt", r, err)
			}
			return
		}
		if r.Key != key || r.WriteID != writeID || string(r.State) != state {
			t.Fatalf("decode made %q %q %q of %q %q %q", r.Key, r.WriteID, r.State, key, writeID, state)
		}
		again, err := newPacker().encode(*r)
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

func TestNumberOf(t *testing.T) {
	t.Parallel()
	it := item{
		"n": number(-7), "half": &types.AttributeValueMemberN{Value: "1.5"},
		"huge": &types.AttributeValueMemberN{Value: "9223372036854775808"}, "text": text("7"),
	}
	if n, ok := numberOf(it, "n"); n != -7 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	for _, name := range []string{"half", "huge", "text", "nothing"} {
		if n, ok := numberOf(it, name); ok {
			t.Errorf("%s is %d", name, n)
		}
	}
}

// A store's own time for a call counts unless its configuration has another.
func TestOpen(t *testing.T) {
	t.Parallel()
	for want, configured := range map[time.Duration]time.Duration{time.Minute: 0, time.Hour: time.Hour} {
		table := open(Config{API: new(dynamodb.Client), Table: "t", Timeout: configured}, time.Minute)
		ctx, cancel := table.bound(t.Context())
		end, ok := ctx.Deadline()
		cancel()
		if left := time.Until(end); !ok || left > want || left < want-30*time.Second {
			t.Errorf("%v: %v is left", want, left)
		}
	}
}
