package gameday

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// call is one request to DynamoDB.
type call struct {
	operation string       // such as PutItem
	state     ledger.State // of the payment that a PutItem writes, else empty
	payer     string       // in lower case, else empty
	leased    bool         // the writer goes on with the payment
}

// tableFault is what DynamoDB does with a call. The zero value does nothing.
type tableFault struct {
	// throttles chooses the calls that are turned away, as DynamoDB turns away
	// what is above a table's capacity.
	throttles func(call) bool
	// wrote is called when a call has been carried out and not yet answered.
	wrote func(call)
}

// table is a DynamoDB-compatible server behind a door.
type table struct {
	*door
	faulty[tableFault]
	target string
	client *http.Client
	passed func(payer string) // called when a payment has been written
	phases *phases
	away   atomic.Int64 // calls turned away
}

func newTable(t *testing.T, addr, target string, passed func(string)) *table {
	t.Helper()
	b := &table{target: target, passed: passed, phases: newPhases(), client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	b.door = serve(t, addr, b, nil)
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

func (b *table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the function is gone
	}
	c := callOf(r, body)
	b.phases.arrives(c, time.Now())
	fault := b.fault()
	if fault.throttles != nil && fault.throttles(c) {
		turnAway(w, b.away.Add(1))
		return
	}
	status, header, reply := b.forward(r, body)
	if status == http.StatusOK {
		b.phases.written(c, time.Now())
	}
	if c.payer != "" {
		b.passed(c.payer)
	}
	if fault.wrote != nil {
		fault.wrote(c)
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(reply) // the function may be gone
}

func (b *table) forward(r *http.Request, body []byte) (int, http.Header, []byte) {
	// A write is carried out even if the function does not wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), patience)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, r.Method, b.target+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	res, err := b.client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(res.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return res.StatusCode, res.Header, reply
}

// turnAway answers as DynamoDB does, with each of its two ways to say so.
func turnAway(w http.ResponseWriter, n int64) {
	name, message := "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
		"The level of configured provisioned throughput for the table was exceeded. Consider increasing your provisioning level with the UpdateTable API."
	if n%2 == 0 {
		name, message = "com.amazon.coral.availability#ThrottlingException", "Rate of requests exceeds the allowed throughput."
	}
	body := fmt.Sprintf(`{"__type":%q,"message":%q}`, name, message)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE([]byte(body))))
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprint(w, body)
}

// callOf reads a call.
func callOf(r *http.Request, body []byte) call {
	var q struct {
		Item map[string]struct {
			S string
			B []byte
		}
	}
	_ = json.Unmarshal(body, &q) // what is no write has no item
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	c := call{operation: operation}
	if key := strings.Split(q.Item[dynamo.AttrKey].S, "|"); operation == "PutItem" && len(key) == 4 {
		c.state, c.payer = ledger.State(q.Item[dynamo.AttrState].S), key[2]
		var record struct {
			LeaseUntil string `json:"lease_until"`
		}
		doc, _ := dynamo.Unpack(&types.AttributeValueMemberB{Value: q.Item[dynamo.AttrRecord].B}) // as the ledger wrote it
		_ = json.Unmarshal(doc, &record)
		c.leased = record.LeaseUntil != ""
	}
	return c
}
