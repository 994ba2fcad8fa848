package dynamo_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

func zipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(s))
	must(t, errors.Join(err, z.Close()))
	return b.Bytes()
}

func TestFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testbed.StartDynamo(t))
	// What one process puts, another gets.
	config := dynamo.Config{API: w.direct, Table: w.table, Timeout: patience}
	const key = "rdap|bootstrap"
	one, other := dynamo.NewFile(config, key), dynamo.NewFile(config, key)
	if doc, fetched, err := one.Get(t.Context()); doc != nil || !fetched.IsZero() || err != nil {
		t.Fatalf("Get of nothing = %q, %v, %v", doc, fetched, err)
	}
	for i, doc := range []string{`{"version":"1.0"}`, strings.Repeat(`["com"],`, 50_000)} {
		at := noon.Add(time.Duration(i) * time.Hour)
		must(t, one.Put(t.Context(), []byte(doc), at.Add(999*time.Millisecond)))
		if got, fetched, err := other.Get(t.Context()); string(got) != doc || !fetched.Equal(at) || err != nil {
			t.Errorf("Get = %d bytes, %v, %v; want %d bytes, %v", len(got), fetched, err, len(doc), at)
		}
	}
	noise := make([]byte, 500<<10)
	rand.Read(noise)
	for _, large := range [][]byte{noise, make([]byte, 5<<20)} {
		if err := one.Put(t.Context(), large, noon); !errors.Is(err, dynamo.ErrTooLarge) {
			t.Errorf("Put of %d bytes = %v", len(large), err)
		}
	}
	if got, _, err := other.Get(t.Context()); len(got) != 400_000 || err != nil {
		t.Errorf("after it: %d bytes, %v", len(got), err)
	}
	sound, now := zipped(t, "x"), num("1")
	for name, it := range map[string]item{
		"no file": {"fetched": now}, "no time": {"file": bin(sound)}, "odd time": {"file": bin(sound), "fetched": num("1.5")},
		"not gzip": {"file": bin([]byte("x")), "fetched": now}, "cut short": {"file": bin(sound[:len(sound)-3]), "fetched": now},
		"text": {"file": str("x"), "fetched": now}, "expands a lot": {"file": bin(zipped(t, strings.Repeat("x", 5<<20))), "fetched": now},
	} {
		it["pk"] = str(key)
		w.put(it)
		if doc, _, err := one.Get(t.Context()); err == nil || doc != nil {
			t.Errorf("%s: Get = %d bytes, %v", name, len(doc), err)
		}
	}
	down := dynamo.NewFile(fake{get: func(context.Context) (item, error) { return nil, errDown }, put: func() error { return errDown }}.config(), key)
	if doc, _, err := down.Get(t.Context()); !errors.Is(err, errDown) || doc != nil {
		t.Errorf("Get = %q, %v", doc, err)
	}
	if err := down.Put(t.Context(), []byte("x"), noon); !errors.Is(err, errDown) {
		t.Errorf("Put = %v", err)
	}
}
