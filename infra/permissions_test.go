package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	testSecret = "arn:aws:secretsmanager:us-east-1:111122223333:secret:facilitator-AbCdEf"
	testToken  = "let-me-settle"
)

// recorder notes what functions ask of AWS, in the words of a policy.
type recorder struct {
	table  string
	direct *dynamodb.Client // what goes this way is not noted

	mu    sync.Mutex
	asked map[string]map[string]bool // slug -> "action on resource"
}

func newRecorder(table string) *recorder {
	return &recorder{table: table, asked: map[string]map[string]bool{}}
}

func (r *recorder) used(slug string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.asked[slug]))
}

// note notes one request, and leaves its body to be read again. It returns the secret
// that is asked for.
func (r *recorder) note(t *testing.T, slug string, req *http.Request) (secret string) {
	text, err := io.ReadAll(req.Body)
	if err != nil {
		t.Errorf("%s: %v", slug, err)
	}
	req.Body = io.NopCloser(bytes.NewReader(text))
	var body struct {
		TableName, IndexName, SecretId string
		Key, Item                      map[string]struct{ S string }
	}
	if err := json.Unmarshal(text, &body); err != nil {
		t.Errorf("%s: %v", slug, err)
	}
	service, action, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	service, _, _ = strings.Cut(strings.ToLower(service), "_") // of its version
	on := "something else: " + string(text)
	switch {
	case body.TableName == r.table && body.IndexName != "":
		on = "${Ledger.Arn}/index/" + body.IndexName
	case body.TableName == r.table:
		on = "Ledger.Arn of " + formOf(body.Key[dynamo.AttrKey].S+body.Item[dynamo.AttrKey].S)
	case body.SecretId == testSecret:
		on = "FacilitatorSecretArn"
	case body.SecretId == fallbackSecret:
		on = "FacilitatorFallbackSecretArn"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked[slug] == nil {
		r.asked[slug] = map[string]bool{}
	}
	r.asked[slug][service+":"+action+" on "+on] = true
	return body.SecretId
}

// forget deletes an item.
func (r *recorder) forget(t *testing.T, key string) {
	t.Helper()
	_, err := r.direct.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: &r.table, Key: map[string]types.AttributeValue{dynamo.AttrKey: &types.AttributeValueMemberS{Value: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// spreads buys one answer of an operation after the other, until a function has
// taken slots in both of the items that hold the leases of a hundred. A slot's item
// is drawn at random, and its first lease makes it.
func (r *recorder) spreads(t *testing.T, slug string, o catalog.Operation, buy func(key string)) {
	t.Helper()
	var want []string
	for _, form := range slotForms(o.Slug) {
		want = append(want, on(form, "GetItem")...)
	}
	for n := 0; o.Kind != catalog.SmokeTest; n++ {
		used := r.used(slug)
		if !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(used, s) }) {
			return
		}
		if n == 100 {
			t.Fatalf("%s: all leases of %s are in one item: %q", slug, o.Slug, used)
		}
		for _, item := range []string{"", "#1"} {
			r.forget(t, "slots|"+o.Slug+item)
		}
		buy(fmt.Sprintf("lease-%d-of-%s-by-%s", n, o.Slug, slug))
	}
}

// formOf is the form of a key, or the key itself where it has none.
func formOf(key string) string {
	for _, form := range keyForms() {
		start, open := strings.CutSuffix(form, "*")
		if key == form || open && strings.HasPrefix(key, start) {
			return form
		}
	}
	return key
}

// dynamoDB is a way to a DynamoDB for one function, which is noted.
func (r *recorder) dynamoDB(t *testing.T, slug, to string) string {
	t.Helper()
	target := must(url.Parse(to))(t)
	proxy := httputil.NewSingleHostReverseProxy(target)
	return serve(t, func(w http.ResponseWriter, req *http.Request) {
		r.note(t, slug, req)
		proxy.ServeHTTP(w, req)
	})
}

// secrets is a Secrets Manager for one function, which is noted. more is what else the
// secret of the first facilitator has.
func (r *recorder) secrets(t *testing.T, slug, more string) string {
	t.Helper()
	secrets := map[string]string{testSecret: `{"token":"` + testToken + `"` + more + `}`, fallbackSecret: `{"token":"` + fallbackToken + `"}`}
	return serve(t, func(w http.ResponseWriter, req *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": secrets[r.note(t, slug, req)]})
	})
}

// The second facilitator's credentials, which the first one never sees.
const (
	fallbackSecret = "arn:aws:secretsmanager:us-east-1:111122223333:secret:fallback-GhIjKl"
	fallbackToken  = "of-the-fallback"
)

func holdsToken(t *testing.T, token string, h http.Handler) string {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+token {
			t.Errorf("a facilitator was sent the credentials %q", got)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// nothingExists is a resolver that knows com and no name in it.
func nothingExists(t *testing.T) string {
	t.Helper()
	return testbed.Resolver(t, testbed.ReadZone(t, "com. 30 NS a.gtld-servers.net."))
}

// cloud is every function as it is built and configured, with all that it asks
// of AWS noted. The rate limit is so low that a client's second request is
// counted in the table; client is where requests come from.
func cloud(t *testing.T, client func() string) (base string, watch *recorder) {
	t.Helper()
	server := testbed.StartDynamo(t)
	watch = newRecorder(server.Table(t))
	watch.direct = dynamo.NewClient(server.ClientConfig())
	// The first facilitator has moved, so that everything is asked of both.
	facilitator, fallback := holdsToken(t, testToken, http.NotFoundHandler()), holdsToken(t, fallbackToken, testbed.NewFacilitator(t, x402test.FacilitatorConfig{}))
	bootstrap := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version":"1.0","publication":"2026-01-01T00:00:00Z","services":[[["test"],["https://rdap.test/"]]]}`)
	})
	params := testParams()
	maps.Copy(params, map[string]string{
		"Ledger": watch.table, "FacilitatorUrl": facilitator, "FacilitatorSecretArn": testSecret, "RpcUrl": "none",
		"FacilitatorFallbackUrl": fallback, "FacilitatorFallbackSecretArn": fallbackSecret,
		"DnsResolvers": nothingExists(t), "RdapBootstrapUrl": bootstrap, "RateLimitPerMinute": "10",
		"ConcurrencySingle": "100", "ConcurrencyBundle": "100",
	})
	logs := new(testbed.Output)
	configure := func(c *lambdahost.Config) {
		for _, slug := range slugs() {
			for _, f := range c.Functions {
				if f.Name == logicalID(slug) {
					f.Env["AWS_ENDPOINT_URL_DYNAMODB"] = watch.dynamoDB(t, slug, server.URL)
					f.Env["AWS_ENDPOINT_URL_SECRETS_MANAGER"] = watch.secrets(t, slug, "")
				}
			}
		}
		c.Logs, c.SourceIP = logs, func(string) string { return client() }
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the functions logged:\n%s", logs)
		}
	})
	_, base = testbed.Deployment{Functions: testbed.Functions(t), Parameters: params, Configure: configure}.Open(t)
	return base, watch
}

// keyed sends a purchase key with each request.
type keyed struct{ key string }

func (k *keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Idempotency-Key", k.key)
	return http.DefaultTransport.RoundTrip(r)
}

// usesTools buys every operation as a tool, sends the payment again, and signs
// anew. next is called before each new purchase.
func usesTools(t *testing.T, client *x402test.Client, keyed *keyed, url string, watch *recorder, next func()) {
	t.Helper()
	for _, o := range catalog.All() {
		next()
		watch.forget(t, "rdap|bootstrap")
		keyed.key = "the-tool-call-of-" + o.Slug
		args := map[string]any{}
		for _, v := range o.Example {
			args[v.Name] = v.Value
		}
		sign := func() string {
			header := must(client.SignCall(t.Context(), url, o.Tool, args))(t)
			return header
		}
		header := sign()
		for i, replayed := range []bool{false, true, true} {
			if i == 2 {
				header = sign()
			}
			r, err := client.Call(t.Context(), url, o.Tool, args, header, "")
			if err != nil || r.Meta.Receipt == nil || r.Meta.Replayed != replayed {
				t.Errorf("%s: %v, replayed %v: %s", o.Tool, err, replayed, r.Raw)
			}
		}
		watch.spreads(t, slugMCP, o, func(key string) {
			next()
			keyed.key = key
			if r, err := client.Call(t.Context(), url, o.Tool, args, sign(), ""); err != nil || r.Meta.Receipt == nil {
				t.Fatalf("%s: %v: %s", key, err, r.Raw)
			}
		})
	}
}

// TestPermissionsUsedAreGranted runs every function through what it can do, and
// holds what it asked of AWS against what the template allows it: nothing is
// missing, and nothing is there that is not needed. The scheduled function is
// held to it by TestReconcileFunction.
func TestPermissionsUsedAreGranted(t *testing.T) {
	t.Parallel()
	// Each operation has a client of its own, which no other's requests limit.
	var clients atomic.Int64
	base, watch := cloud(t, func() string { return fmt.Sprintf("192.0.2.%d", clients.Load()) })
	keyed := &keyed{}
	client := testbed.NewClient(t, &http.Client{Transport: keyed})
	get := func(path, header string) x402test.Reply {
		t.Helper()
		r := must(client.Get(t.Context(), base+path, header))(t)
		return r
	}
	for _, o := range catalog.All() {
		clients.Add(1)
		watch.forget(t, "rdap|bootstrap") // each that needs it fetches it
		keyed.key = "the-purchase-of-" + o.Slug
		path := o.ExampleURL("")
		// A challenge asks AWS for the client's rate and for nothing else.
		if r := get(path, ""); r.Status != http.StatusPaymentRequired {
			t.Errorf("%s: status %d without a payment: %s", o.Slug, r.Status, r.Body)
		}
		if used := watch.used(o.Slug); slices.ContainsFunc(used, func(s string) bool { return s != "dynamodb:UpdateItem on Ledger.Arn of rate|*" }) {
			t.Errorf("%s: a challenge asked for %q", o.Slug, used)
		}
		first, header, err := client.Buy(t.Context(), base+path)
		if err != nil {
			t.Fatal(err)
		}
		// Nothing exists here, which is an answer, or 200 with such children.
		if first.Header.Get("PAYMENT-RESPONSE") == "" || (first.Status != http.StatusOK && first.Status != http.StatusNotFound) {
			t.Errorf("%s: status %d: %s", o.Slug, first.Status, first.Body)
		}
		if again := get(path, header); again.Status != first.Status || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: status %d the second time: %s", o.Slug, again.Status, again.Body)
		}
		// Another signature for the same purchase is answered by the first.
		if anew, _, err := client.Buy(t.Context(), base+path); err != nil || anew.Status != first.Status || anew.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: status %d, %v, signed anew: %s", o.Slug, anew.Status, err, anew.Body)
		}
		watch.spreads(t, o.Slug, o, func(key string) {
			clients.Add(1)
			keyed.key = key
			if r, _, err := client.Buy(t.Context(), base+path); err != nil || r.Status != first.Status {
				t.Fatalf("%s: status %d, %v: %s", key, r.Status, err, r.Body)
			}
		})
	}
	usesTools(t, client, keyed, base+catalog.PathMCP, watch, func() { clients.Add(1) })
	if r := get(catalog.PathReady, ""); r.Status != http.StatusOK && r.Status != http.StatusServiceUnavailable {
		t.Errorf("/ready: status %d: %s", r.Status, r.Body)
	}
	for i, path := range append(catalog.FreePaths(), "/", "/nowhere") {
		if i%5 == 0 { // several documents a client, so that some are counted
			clients.Add(1)
		}
		if r := get(path, ""); len(r.Body) == 0 || r.Status == http.StatusTooManyRequests {
			t.Errorf("%s: status %d, %d bytes", path, r.Status, len(r.Body))
		}
	}
	for _, slug := range slugs() {
		if slug == scheduled {
			continue
		}
		if d := cmp.Diff(granted(t, slug), watch.used(slug)); d != "" {
			t.Errorf("%s: permissions (-granted +used):\n%s", slug, d)
		}
	}
}
