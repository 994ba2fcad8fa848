package boot

import (
	"encoding/json"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// What one process keeps, another one reads, with when it was fetched to the second. An
// item that this version did not write is as good as none, and a table that fails is an
// error.
func TestBootstrapFile(t *testing.T) {
	t.Parallel()
	stored := "{}"
	table := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Key, Item json.RawMessage
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		reply := "{}"
		down := stored == "down"
		switch {
		case strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem"):
			stored = `{"Item":` + string(call.Item) + "}"
		case string(call.Key) == `{"pk":{"S":"rdap|bootstrap"}}`:
			reply = stored
		}
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(reply))), 10))
		if down {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write([]byte(reply))
	}))
	defer table.Close()
	open := func() bootstrapFile {
		return bootstrapFile{dynamo.NewClient(aws.Config{Region: "us-east-1", BaseEndpoint: &table.URL, Credentials: testKeys()}), "t"}
	}
	for _, none := range []string{"{}", `{"Item":{"pk":{"S":"rdap|bootstrap"},"file":{"B":"eA=="},"fetched":{"N":"1"}}}`} {
		stored = none
		if doc, at, err := open().Get(t.Context()); doc != nil || !at.IsZero() || err != nil {
			t.Errorf("Get of %s = %q, %v, %v", none, doc, at, err)
		}
	}
	at := time.Date(2026, 11, 1, 12, 0, 0, 999, time.UTC)
	if err := open().Put(t.Context(), []byte(`{"version":"1.0"}`), at); err != nil {
		t.Fatal(err)
	}
	if doc, fetched, err := open().Get(t.Context()); string(doc) != `{"version":"1.0"}` || !fetched.Equal(at.Truncate(time.Second)) || err != nil {
		t.Errorf("Get = %q, %v, %v", doc, fetched, err)
	}
	stored = strings.Replace(stored, `"document":{"B"`, `"document":{"S"`, 1)
	if doc, _, err := open().Get(t.Context()); doc != nil || err == nil {
		t.Errorf("Get of a text = %q, %v", doc, err)
	}
	stored = "down"
	if _, _, err := open().Get(t.Context()); err == nil {
		t.Error("Get of a table that is down: no error")
	}
	if err := open().Put(t.Context(), []byte("x"), at); err == nil {
		t.Error("Put into a table that is down: no error")
	}
}
