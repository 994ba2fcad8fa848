package functions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestColdStartAsksNobody builds every function as for a deployment, with the settings of the
// template, and sends the function its example event. A priced function must answer with its
// offer, and a free function with its document. Before this first answer, the function must
// call no server: not the table, the facilitator, Secrets Manager, the chain, a resolver or a
// registry.
func TestColdStartAsksNobody(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	web := testbed.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	names := testbed.Resolver(t, dns.HandlerFunc(func(dns.ResponseWriter, *dns.Msg) { asked.Add(1) }))
	params := parameters()
	maps.Copy(params, map[string]string{
		"FacilitatorUrl": web, "FacilitatorSecretArn": testSecret, "RpcUrl": web, "DnsResolvers": names, "RdapBootstrapUrl": web, "LogLevel": "debug",
	})
	h, logs := openHost(t, params, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": web, "AWS_ENDPOINT_URL_SECRETS_MANAGER": web})
	for slug := range deployed.Routes() {
		if slug == sam.Reconcile {
			continue // reconcile calls other servers in every invocation
		}
		event := testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "events", slug+".json")))
		payload, cold, err := h.Call(sam.LogicalID(slug), event)
		if err != nil {
			t.Errorf("%s: %v", slug, err)
			continue
		}
		var resp events.APIGatewayV2HTTPResponse
		testbed.Check(json.Unmarshal(payload, &resp))
		want := http.StatusOK
		if _, priced := catalog.BySlug(slug); priced {
			want = http.StatusPaymentRequired
			if resp.Headers["payment-required"] == "" {
				t.Errorf("%s: no PAYMENT-REQUIRED", slug)
			}
		}
		if resp.StatusCode != want || resp.Body == "" {
			t.Errorf("%s: status %d, want %d: %.200s", slug, resp.StatusCode, want, resp.Body)
		}
		binary := testbed.Must(os.Stat(filepath.Join(testbed.Functions(t), slug, "bootstrap")))
		t.Attr(slug, fmt.Sprint(cold.Microseconds(), " ", binary.Size())) // make bench reads both numbers
		if n := asked.Swap(0); n != 0 {
			t.Errorf("%s asked somebody %d times before its first answer", slug, n)
		}
	}
	// Unlike the events above, a readiness check must call some of these servers. This shows
	// that the test counts calls.
	ready := testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "events", sam.Health+".json")))
	ready = bytes.ReplaceAll(ready, []byte(catalog.PathHealth), []byte(catalog.PathReady))
	if _, _, err := h.Call(sam.LogicalID(sam.Health), ready); err != nil || asked.Load() == 0 {
		t.Errorf("nobody was asked for readiness: %v", err)
	}
	if t.Failed() {
		t.Logf("the functions logged:\n%s", logs())
	}
}
