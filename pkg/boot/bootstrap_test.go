package boot

import (
	"encoding/json"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// TestBootstrapFile checks that a process reads the file that another process has stored, with
// the time at which it was fetched, to the second. An item without the attribute for the file
// counts as absent. If that attribute has another type, or if the table fails, there is an
// error.
func TestBootstrapFile(t *testing.T) {
	t.Parallel()
	stored, down := "{}", false
	table := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct{ Key, Item json.RawMessage }
		check(t, json.NewDecoder(r.Body).Decode(&call))
		reply := "{}"
		if call.Item != nil && !down {
			stored = `{"Item":` + string(call.Item) + "}"
		} else if string(call.Key) == `{"pk":{"S":"rdap|bootstrap"}}` {
			reply = stored
		}
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(reply))), 10))
		w.WriteHeader(map[bool]int{false: http.StatusOK, true: http.StatusBadRequest}[down])
		_, _ = io.WriteString(w, reply)
	}))
	defer table.Close()
	f := bootstrapFile{dynamo.APIOf(dynamo.NewClient(aws.Config{Region: "us-east-1", BaseEndpoint: &table.URL, Credentials: testKeys()})), "t"}
	for _, none := range []string{"{}", `{"Item":{"pk":{"S":"rdap|bootstrap"},"file":{"B":"eA=="},"fetched":{"N":"1"}}}`} {
		stored = none
		if doc, at, err := f.Get(t.Context()); doc != nil || !at.IsZero() || err != nil {
			t.Errorf("Get of %s = %q, %v, %v", none, doc, at, err)
		}
	}
	at := time.Date(2026, 11, 1, 12, 0, 0, 999, time.UTC)
	check(t, f.Put(t.Context(), []byte(`{"version":"1.0"}`), at))
	if doc, fetched, err := f.Get(t.Context()); string(doc) != `{"version":"1.0"}` || !fetched.Equal(at.Truncate(time.Second)) || err != nil {
		t.Errorf("Get = %q, %v, %v", doc, fetched, err)
	}
	stored = strings.Replace(stored, `"document":{"B"`, `"document":{"S"`, 1)
	if doc, _, err := f.Get(t.Context()); doc != nil || err == nil {
		t.Errorf("Get of a text = %q, %v", doc, err)
	}
	down = true
	_, _, get := f.Get(t.Context())
	if put := f.Put(t.Context(), []byte("x"), at); put == nil || get == nil {
		t.Errorf("a table that is down: Get %v, Put %v", get, put)
	}
}
