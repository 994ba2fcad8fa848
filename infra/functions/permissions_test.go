package functions

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// The ARNs of the two facilitators' secrets, and the tokens in these secrets. Neither
// facilitator may receive the token of the other.
const (
	testSecret     = "arn:aws:secretsmanager:us-east-1:111122223333:secret:facilitator-AbCdEf"
	testToken      = "let-me-settle"
	fallbackSecret = "arn:aws:secretsmanager:us-east-1:111122223333:secret:fallback-GhIjKl"
	fallbackToken  = "of-the-fallback"
)

// recorder takes the place of AWS for the functions, with a DynamoDB table and Secrets
// Manager. It records the permission that each request of a function needs.
type recorder struct {
	table, url       string
	unrecordedClient *dynamodb.Client // a client whose requests are not recorded

	grantedPermissions map[string][]string // the permissions that the template grants, by slug, as deployed.Granted returns them

	mu                sync.Mutex
	neededPermissions map[string][]string // the permissions that requests have needed, by slug, written as in grantedPermissions
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	server := cloud.StartDynamo(t)
	r := &recorder{table: server.Table(t), url: server.URL, unrecordedClient: dynamo.NewClient(server.Config()), neededPermissions: map[string][]string{}, grantedPermissions: map[string][]string{}}
	for _, slug := range slugs() {
		r.grantedPermissions[slug] = deployed.Granted(t, slug)
	}
	return r
}

func (r *recorder) usedPermissions(slug string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(r.neededPermissions[slug])))
}

// environment returns variables that make the function with the given slug call the recorder
// in place of AWS. The secret of the first facilitator is a JSON object with the token. The
// argument members is either empty or a text like `,"name":"value"`, which adds to that object.
func (r *recorder) environment(t *testing.T, slug, members string) map[string]string {
	t.Helper()
	secrets := map[string]string{testSecret: `{"token":"` + testToken + `"` + members + `}`, fallbackSecret: `{"token":"` + fallbackToken + `"}`}
	to := testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, r.url), Do: func(q *testbed.Relayed) {
		var body call
		if err := json.Unmarshal(q.Sent, &body); err != nil {
			t.Errorf("%s: %v: %s", slug, err, q.Sent)
		}
		r.recordPermission(slug, q.Request.Header.Get("X-Amz-Target"), body)
		if body.SecretId == "" {
			q.Pass()
			return
		}
		_ = json.NewEncoder(q.ResponseWriter).Encode(map[string]string{"SecretString": secrets[body.SecretId]})
	}})
	return map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": to, "AWS_ENDPOINT_URL_SECRETS_MANAGER": to}
}

// call has those members of a request to DynamoDB or Secrets Manager that name a table, an
// index, an item or a secret.
type call struct {
	TableName, IndexName, SecretId string
	Key, Item                      map[string]struct{ S string }
}

func (r *recorder) recordPermission(slug, target string, c call) {
	service, action, _ := strings.Cut(target, ".")
	service, _, _ = strings.Cut(strings.ToLower(service), "_") // the service without the API version
	on := map[string]string{testSecret: "FacilitatorSecretArn", fallbackSecret: "FacilitatorFallbackSecretArn"}[c.SecretId]
	switch key := c.Key[dynamo.AttrKey].S + c.Item[dynamo.AttrKey].S; {
	case c.TableName == r.table && c.IndexName != "":
		on = "${Ledger.Arn}/index/" + c.IndexName
	case c.TableName == r.table:
		on = "Ledger.Arn of " + key
		for _, permission := range r.grantedPermissions[slug] {
			_, form, _ := strings.Cut(permission, " of ")
			if start, open := strings.CutSuffix(form, "*"); open && strings.HasPrefix(key, start) {
				on = "Ledger.Arn of " + form
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.neededPermissions[slug] = append(r.neededPermissions[slug], service+":"+action+" on "+on)
}

// deleteItems deletes the items with the given keys from the table.
func (r *recorder) deleteItems(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		testbed.Must(r.unrecordedClient.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
			TableName: &r.table, Key: map[string]types.AttributeValue{dynamo.AttrKey: &types.AttributeValueMemberS{Value: key}},
		}))
	}
}

// serveWithToken serves the handler h, and returns the URL. The test fails if a request does
// not have the token.
func serveWithToken(t *testing.T, token string, h http.Handler) string {
	t.Helper()
	return testbed.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+token {
			t.Errorf("a facilitator was sent the credentials %q", got)
		}
		h.ServeHTTP(w, r)
	}))
}

// bothFacilitators returns parameters of the template with two facilitators and a resolver.
// The first facilitator answers 404, so a function that sells calls both. The resolver serves
// an empty zone com, so none of the looked-up names exists.
func bothFacilitators(t *testing.T, table string) map[string]string {
	t.Helper()
	return map[string]string{
		"Ledger": table, "DnsResolvers": testbed.Resolver(t, testbed.ReadZone(t, "com. 30 NS a.gtld-servers.net.")),
		"FacilitatorUrl": serveWithToken(t, testToken, http.NotFoundHandler()), "FacilitatorSecretArn": testSecret,
		"FacilitatorFallbackUrl":       serveWithToken(t, fallbackToken, testbed.NewFacilitator(t)),
		"FacilitatorFallbackSecretArn": fallbackSecret,
	}
}

// shopper buys from the built functions, whose requests to AWS the recorder records. The rate
// limit is so low that a function counts a client in the table from its second request on.
type shopper struct {
	*recorder
	*x402test.Client
	base        string
	key         string // the Idempotency-Key of the current purchase
	clientCount int    // the number of clients so far, each with a different address
}

func newShopper(t *testing.T) *shopper {
	t.Helper()
	s := &shopper{recorder: newRecorder(t)}
	s.Client = testbed.NewClient(t, &http.Client{Transport: s})
	params := bothFacilitators(t, s.table)
	maps.Copy(params, map[string]string{
		"RpcUrl": "none", "RateLimitPerMinute": "10", "ConcurrencySingle": "100", "ConcurrencyBundle": "100",
		"RdapBootstrapUrl": testbed.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"version":"1.0","publication":"2026-01-01T00:00:00Z","services":[[["test"],["https://rdap.test/"]]]}`)
		})),
	})
	logs := new(programs.Output)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the functions logged:\n%s", logs)
		}
	})
	s.base = cloud.Deployment{
		Functions: testbed.Functions(t), Parameters: params, Logs: logs,
		EnvironmentOf: func(slug string) map[string]string { return s.environment(t, slug, "") },
		// The shopper sends one request after the other. So the current request comes
		// from the newest client, whose number is s.clientCount.
		Source: func() string { return fmt.Sprint("192.0.2.", s.clientCount) },
	}.Open(t).URL
	return s
}

func (s *shopper) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Idempotency-Key", s.key)
	return http.DefaultTransport.RoundTrip(r)
}

// beginPurchase begins a new purchase by a new client. Because every purchase has a new client,
// no client reaches the rate limit.
func (s *shopper) beginPurchase() {
	s.clientCount++
	s.key = fmt.Sprint("purchase-by-client-", s.clientCount)
}

// way is a way to buy an operation: over HTTP from the operation's function, or from the MCP
// server.
type way struct {
	slug string
	sign func() (header string, err error)
	send func(header string) (paid, replayed bool, said any)
}

func (s *shopper) ways(t *testing.T, o catalog.Operation) []way {
	url, args := s.base+o.ExampleURL(""), map[string]any{}
	for _, p := range o.Example() {
		args[p.Name] = p.Example
	}
	return []way{{
		o.Slug, func() (string, error) { return s.Sign(t.Context(), url) },
		func(header string) (paid, replayed bool, said any) {
			r := testbed.Must(s.Get(t.Context(), url, header))
			// None of the looked-up names exists. So a single lookup answers 404, and a bundle
			// 200.
			paid = r.Header.Get("PAYMENT-RESPONSE") != "" && (r.Status == http.StatusOK || r.Status == http.StatusNotFound)
			return paid, r.Header.Get("Idempotent-Replayed") == "true", r
		},
	}, {
		sam.MCP, func() (string, error) {
			return mcptest.SignCall(t.Context(), s.Client, s.base+catalog.PathMCP, o.Tool, args)
		},
		func(header string) (paid, replayed bool, said any) {
			r := testbed.Must(mcptest.Call(t.Context(), s.Client, s.base+catalog.PathMCP, o.Tool, args, header, ""))
			return r.Meta.Receipt != nil, r.Meta.Replayed, r
		},
	}}
}

// buy sends three paid requests for an operation, all of one purchase. The second request has
// the same payment as the first, and the third has a new payment. The second and the third
// must get the stored answer to the first.
func (s *shopper) buy(t *testing.T, o catalog.Operation, w way) {
	t.Helper()
	s.beginPurchase()
	terms := testbed.LocalTerms(t)
	payees := ledger.SoldKey(terms.Network, strings.ToLower(terms.Asset))
	s.deleteItems(t, "rdap|bootstrap", "slots|"+o.Slug, payees) // the function must write these items again
	var header string
	for i := range 3 {
		if i != 1 {
			header = testbed.Must(w.sign())
		}
		if paid, replayed, said := w.send(header); !paid || replayed != (i > 0) {
			t.Fatalf("%s by %s, sent %d times before: replayed %v: %v", o.Slug, w.slug, i, replayed, said)
		}
	}
}

// TestPermissionsUsedAreGranted makes every function do everything that it can do. A function
// must use exactly the permissions that the template grants to it. TestReconcileFunction checks
// the same for the scheduled function.
func TestPermissionsUsedAreGranted(t *testing.T) {
	t.Parallel()
	s := newShopper(t)
	for _, o := range catalog.All() {
		for _, w := range s.ways(t, o) {
			s.beginPurchase()
			testbed.Must(w.sign())
			// For a challenge, a function counts the request for the client's rate limit. It
			// must do nothing else in AWS.
			if used := s.usedPermissions(w.slug); w.slug == o.Slug && slices.ContainsFunc(used, func(u string) bool { return u != "dynamodb:UpdateItem on Ledger.Arn of rate|*" }) {
				t.Errorf("%s: a challenge asked for %q", o.Slug, used)
			}
			s.buy(t, o, w)
		}
	}
	for i, path := range []string{
		catalog.PathHealth, catalog.PathReady, catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathManifest, catalog.PathLLMs,
		catalog.PathLLMsFull, catalog.PathDocs, "/", "/nowhere", catalog.PathReady, catalog.PathReady, catalog.PathReady,
	} {
		if i%5 == 0 { // each client gets five documents: enough for the function to count requests in the table, and too few for the rate limit
			s.beginPurchase()
		}
		if r := testbed.Must(s.Get(t.Context(), s.base+path, "")); len(r.Body) == 0 || r.Status == http.StatusTooManyRequests {
			t.Errorf("%s: status %d, %d bytes", path, r.Status, len(r.Body))
		}
	}
	for _, slug := range slugs() {
		if d := cmp.Diff(s.grantedPermissions[slug], s.usedPermissions(slug)); slug != sam.Reconcile && d != "" {
			t.Errorf("%s: permissions (-may +used):\n%s", slug, d)
		}
	}
}
