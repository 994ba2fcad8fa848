package boot

import (
	"context"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/service"
)

// TestMarkCheck checks that a mark is accepted for its stack and payee, in any notation of the
// payee's address. The mark is accepted for the former payee as well while FORMER_TERMS is set.
// For every other mark, the error contains the command that corrects it.
func TestMarkCheck(t *testing.T) {
	t.Parallel()
	const payee, former = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	plain := vars{"STACK_NAME": "shop", "PAY_TO": payee}
	changed := vars{"STACK_NAME": "shop", "PAY_TO": payee, "FORMER_TERMS": "2026-11-20T08:05:00Z,payTo=" + former}
	leaked := vars{"STACK_NAME": "shop", "PAY_TO": payee, "FORMER_TERMS": "none"}
	command := "STACK_NAME=shop PAY_TO=" + payee + " make mark-ledger"
	for name, c := range map[string]struct {
		vars vars
		mark *Mark
		says string
	}{
		"its own":             {plain, &Mark{Stack: "shop", Payee: payee}, ""},
		"in lower case":       {plain, &Mark{Stack: "shop", Payee: strings.ToLower(payee)}, ""},
		"none":                {plain, nil, "not marked as the ledger of stack shop, so it may not be the table that was used before. If it is the right table: "},
		"of another stack":    {plain, &Mark{Stack: "other", Payee: payee}, "not marked as the ledger of stack shop"},
		"of another payee":    {plain, &Mark{Stack: "shop", Payee: former}, `marked for the payee "` + former + `", which is not PAY_TO`},
		"of the former one":   {changed, &Mark{Stack: "shop", Payee: former}, ""},
		"of the new one":      {changed, &Mark{Stack: "shop", Payee: payee}, ""},
		"of the leaked one":   {leaked, &Mark{Stack: "shop", Payee: former}, "FORCE=1"},
		"of text of a hacker": {plain, &Mark{Stack: "shop", Payee: "\x1b[31m"}, `"\x1b[31m"`},
	} {
		err := c.mark.check(deployedConfig(t, c.vars))
		if (err == nil) != (c.says == "") || err != nil && !(strings.Contains(err.Error(), c.says) && strings.Contains(err.Error(), command)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if _, public := errors.AsType[service.Public](err); err != nil && !public {
			t.Errorf("%s: nobody may read %v", name, err)
		}
	}
}

// TestMarkProbe checks that there is a probe of the mark if there are both a table and a
// stack's name. The probe is optional, so the service is ready even if the table cannot be
// reached and the probe fails.
func TestMarkProbe(t *testing.T) {
	t.Parallel()
	nowhere := deployedConfig(t, vars{"STACK_NAME": "shop", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"})
	probe, ok := nowhere.markProbe()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := probe.Check(ctx); !ok || !probe.Optional || err == nil || !strings.Contains(err.Error(), "read the mark of stack shop") {
		t.Errorf("the probe of a table that is not there: %+v, %v, %v", probe, ok, err)
	}
	unnamed := nowhere
	unnamed.Stack = ""
	inFile := nowhere
	inFile.Ledger.Name = ""
	for name, c := range map[string]Config{"no stack": unnamed, "a ledger in a file": inFile} {
		if _, ok := c.markProbe(); ok {
			t.Errorf("%s: there is a probe", name)
		}
	}
}

// TestPublicOrigin checks that the public origin is BASE_URL, or else the origin in the
// ledger's mark. There is no public origin if that origin is on this machine or not https, or
// if the mark cannot be read.
func TestPublicOrigin(t *testing.T) {
	t.Parallel()
	const marked = `{"Item":{"pk":{"S":"stack|shop"},"stack":{"S":"shop"},"payee":{"S":"0x1"},"origin":{"S":"%s"},"written":{"N":"1"}}}`
	for name, c := range map[string]struct {
		base, table string // BASE_URL, and the table's answer in JSON; if the answer is empty, the table fails
		want        string
	}{
		"a domain":              {"https://api.example.com", "{}", "https://api.example.com"},
		"a domain and a mark":   {"https://api.example.com", strings.Replace(marked, "%s", "https://a.example.com", 1), "https://api.example.com"},
		"a mark":                {"", strings.Replace(marked, "%s", "https://a.execute-api.us-east-1.amazonaws.com", 1), "https://a.execute-api.us-east-1.amazonaws.com"},
		"a mark without it":     {"", strings.Replace(marked, "%s", "", 1), ""},
		"no mark":               {"", "{}", ""},
		"a mark of another one": {"", strings.Replace(marked, `"S":"%s"`, `"N":"1"`, 1), ""},
		"this machine":          {"http://127.0.0.1:8402", "{}", ""},
		"a mark in the open":    {"", strings.Replace(marked, "%s", "http://a.example.com", 1), ""},
		"a table that is down":  {"", "", ""},
	} {
		table := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(c.table))), 10))
			if c.table == "" {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = io.WriteString(w, c.table)
		}))
		config := deployedConfig(t, vars{"BASE_URL": c.base, "STACK_NAME": "shop", "AWS_ENDPOINT_URL_DYNAMODB": table.URL})
		checkEqual(t, name, config.publicOrigin(t.Context()), c.want)
		table.Close()
	}
}

// TestSetMarkMeanwhile checks that SetMark replaces only the mark that it has read. If
// somebody else writes a mark with another payee between the reading and the writing, SetMark
// must return an error and keep that mark, even if replace is true.
func TestSetMarkMeanwhile(t *testing.T) {
	t.Parallel()
	stored, condition := "{}", ""
	table := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			ConditionExpression       string
			ExpressionAttributeValues map[string]struct{ S string }
		}
		check(t, json.NewDecoder(r.Body).Decode(&call))
		reply := stored
		if call.ConditionExpression != "" {
			condition = call.ConditionExpression + " " + call.ExpressionAttributeValues[":read"].S
			reply = `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}`
		}
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(reply))), 10))
		if reply != stored {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, reply)
	}))
	defer table.Close()
	ledger := deployedConfig(t, vars{"AWS_ENDPOINT_URL_DYNAMODB": table.URL}).Ledger
	for want, read := range map[string]string{
		"attribute_not_exists(pk) ": "{}",
		"payee = :read 0x1":         `{"Item":{"pk":{"S":"stack|shop"},"stack":{"S":"shop"},"payee":{"S":"0x1"},"written":{"N":"1"}}}`,
	} {
		stored = read
		_, err := ledger.SetMark(t.Context(), Mark{Stack: "shop", Payee: "0x2"}, true)
		if err == nil || !strings.Contains(err.Error(), "somebody else has marked the table for stack shop meanwhile") {
			t.Errorf("%s: %v", want, err)
		}
		checkEqual(t, "the condition", condition, want)
	}
}
