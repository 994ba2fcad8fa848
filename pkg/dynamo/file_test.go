package dynamo_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

var noon = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

const fileKey = "rdap|bootstrap"

func TestFile(t *testing.T) {
	t.Parallel()
	server := dynamotest.Start(t)
	client, table := dynamo.NewClient(server.ClientConfig()), server.Table(t)
	// What one process puts, another gets.
	config := dynamo.Config{API: client, Table: table, Timeout: time.Minute}
	one, other := dynamo.NewFile(config, fileKey), dynamo.NewFile(config, fileKey)

	if doc, fetched, err := one.Get(t.Context()); doc != nil || !fetched.IsZero() || err != nil {
		t.Fatalf("Get of nothing = %q, %v, %v", doc, fetched, err)
	}
	for i, doc := range []string{`{"version":"1.0"}`, strings.Repeat(`["com"],`, 50_000)} {
		at := noon.Add(time.Duration(i) * time.Hour)
		if err := one.Put(t.Context(), []byte(doc), at.Add(999*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		got, fetched, err := other.Get(t.Context())
		if string(got) != doc || !fetched.Equal(at) || err != nil {
			t.Errorf("Get = %d bytes, %v, %v; want %d bytes, %v", len(got), fetched, err, len(doc), at)
		}
	}
	noise := make([]byte, 500<<10)
	rand.Read(noise)
	if err := one.Put(t.Context(), noise, noon); !errors.Is(err, dynamo.ErrTooLarge) {
		t.Errorf("Put of noise = %v", err)
	}
	if got, _, err := other.Get(t.Context()); len(got) != 400_000 || err != nil {
		t.Errorf("after it: %d bytes, %v", len(got), err)
	}

	broken := zipped(t, "x")
	for name, change := range map[string]func(map[string]types.AttributeValue){
		"no file": func(a map[string]types.AttributeValue) { delete(a, dynamo.AttrFile) },
		"no time": func(a map[string]types.AttributeValue) { delete(a, dynamo.AttrFetched) },
		"odd time": func(a map[string]types.AttributeValue) {
			a[dynamo.AttrFetched] = &types.AttributeValueMemberN{Value: "1.5"}
		},
		"not gzip": func(a map[string]types.AttributeValue) {
			a[dynamo.AttrFile] = &types.AttributeValueMemberB{Value: []byte("x")}
		},
		"cut short": func(a map[string]types.AttributeValue) {
			a[dynamo.AttrFile] = &types.AttributeValueMemberB{Value: broken[:len(broken)-3]}
		},
		"text": func(a map[string]types.AttributeValue) { a[dynamo.AttrFile] = &types.AttributeValueMemberS{Value: "x"} },
		"expands a lot": func(a map[string]types.AttributeValue) {
			a[dynamo.AttrFile] = &types.AttributeValueMemberB{Value: zipped(t, strings.Repeat("x", 5<<20))}
		},
	} {
		a := map[string]types.AttributeValue{
			dynamo.AttrKey:     &types.AttributeValueMemberS{Value: fileKey},
			dynamo.AttrFile:    &types.AttributeValueMemberB{Value: broken},
			dynamo.AttrFetched: &types.AttributeValueMemberN{Value: "1"},
		}
		change(a)
		if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: a}); err != nil {
			t.Fatal(err)
		}
		if doc, _, err := one.Get(t.Context()); err == nil || doc != nil {
			t.Errorf("%s: Get = %d bytes, %v", name, len(doc), err)
		}
	}
}

func zipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFileUnreachable(t *testing.T) {
	t.Parallel()
	config := dynamotest.Server{URL: "http://127.0.0.1:1"}.ClientConfig()
	c := dynamo.NewFile(dynamo.Config{API: dynamo.NewClient(config), Table: "t"}, fileKey)
	if doc, _, err := c.Get(t.Context()); err == nil || doc != nil {
		t.Errorf("Get = %q, %v", doc, err)
	}
	if err := c.Put(t.Context(), []byte("x"), noon); err == nil {
		t.Error("Put without a server succeeded")
	}
}
