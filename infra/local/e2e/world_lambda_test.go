package e2e

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// gatewayDomain is the name that the gateway calls the service by.
const gatewayDomain = "e2e.execute-api.us-east-1.amazonaws.com"

func startLambda(tb testing.TB, l *lab) opener {
	verifyOnly(tb, "needs the built functions, and Node for the DynamoDB server")
	db := dynamotest.Start(tb)
	testbed.Functions(tb)
	return func(tb testing.TB, s setup) *deployment { return openLambda(tb, l, db, s) }
}

// openLambda runs the built functions of the template behind a gateway, over a
// table of their own that they reach through a proxy.
func openLambda(tb testing.TB, l *lab, db dynamotest.Server, s setup) *deployment {
	tb.Helper()
	table := db.Table(tb)
	through := newProxy(tb, db.URL)
	config := lambdaConfig(tb, s, table, "http://"+through.addr)
	log := new(testbed.Output)
	config.Logs = log
	host, err := lambdahost.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(host)
	var d *deployment
	tb.Cleanup(func() {
		server.Close()
		host.Close()
		l.checkLog(tb, log.String())
		d.seen.check(tb, log.String())
		for _, name := range host.Names() {
			if st := host.Stats(name); st.Errors != 0 {
				tb.Errorf("%s: %d invocations failed, %d of them timed out", name, st.Errors, st.TimedOut)
			}
		}
	})
	client := dynamotable.NewClient(db.ClientConfig())
	d = &deployment{
		base: server.URL, origin: "https://" + gatewayDomain, log: log.String,
		cut: through.cut, mend: through.mend,
		slow: func(e exchange) bool {
			return e.status == http.StatusServiceUnavailable && !through.isCut() && bytes.Contains(e.body, []byte(fault.LedgerUnavailable))
		},
		plant: func(ctx context.Context, key string) error {
			_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
				dynamo.AttrKey:     &types.AttributeValueMemberS{Value: key},
				dynamo.AttrVersion: &types.AttributeValueMemberN{Value: "1"},
				dynamo.AttrState:   &types.AttributeValueMemberS{Value: "paid twice"},
			}})
			return err
		},
	}
	return d
}

// lambdaConfig is the template with a test's values.
func lambdaConfig(tb testing.TB, s setup, table, endpoint string) lambdahost.Config {
	tb.Helper()
	extra := s.isolated()
	extra["AWS_ENDPOINT_URL_DYNAMODB"] = endpoint
	config, err := lambdahost.FromTemplate(filepath.Join(root, "template.yaml"), testbed.Functions(tb), map[string]string{
		"PayTo": boot.LocalPayTo, "Ledger": table, "LogLevel": "debug",
		"FacilitatorUrl": s.facilitator, "FacilitatorToken": s.token, "DnsResolvers": s.resolvers,
		"ReceiptKey": receiptKey, "ReceiptPublicKeys": receiptPublicKey,
	}, extra)
	if err != nil {
		tb.Fatal(err)
	}
	config.Domain = gatewayDomain
	return config
}

// proxy forwards connections until it is cut.
type proxy struct {
	addr, to string
	listener net.Listener

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func newProxy(tb testing.TB, to string) *proxy {
	tb.Helper()
	u, err := url.Parse(to)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), to: u.Host, listener: l, conns: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.forward(c)
		}
	}()
	tb.Cleanup(func() { l.Close(); p.cut() })
	return p
}

func (p *proxy) forward(a net.Conn) {
	defer a.Close()
	if !p.hold(a) {
		return
	}
	defer p.drop(a)
	b, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer b.Close()
	go func() {
		_, _ = io.Copy(b, a)
		b.Close()
	}()
	_, _ = io.Copy(a, b)
}

func (p *proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.down {
		p.conns[c] = true
	}
	return !p.down
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// cut ends every connection and refuses new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}
