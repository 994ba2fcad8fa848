package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// awsAccount calls AWS services with the Query protocol, which sends a form and answers with
// XML. The SDK's clients for these services would be more code than the few calls made here.
type awsAccount struct {
	aws.Config
	getenv func(string) string
	now    func() time.Time
}

// awsAccount reads the region and the credentials from the environment, as the functions do on
// Lambda.
func (o order) awsAccount() (awsAccount, error) {
	config, err := boot.ParseAWS(o.getenv, "")
	if err != nil {
		return awsAccount{}, fmt.Errorf("%w\naws configure export-credentials --format env prints the credentials, and AWS_REGION is the region of the stack", err)
	}
	return awsAccount{Config: config, getenv: o.getenv, now: o.now}, nil
}

// awsService is an AWS service, with its API version.
type awsService struct {
	name, version string
	endpoint      string // the environment variable that can name an endpoint in place of AWS's, such as a local one
}

// request calls an action of a service, and decodes the answer into the value that reply
// points to.
func (a awsAccount) request(ctx context.Context, s awsService, action string, parameters map[string]string, reply any) error {
	form := url.Values{"Action": {action}, "Version": {s.version}}
	for name, value := range parameters {
		form.Set(name, value)
	}
	body := form.Encode()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, a.endpointOf(s), strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask AWS to %s: %w", action, err)
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	digest := sha256.Sum256([]byte(body))
	bodyHash := hex.EncodeToString(digest[:])
	keys, err := a.Credentials.Retrieve(ctx)
	if err == nil {
		err = v4.NewSigner().SignHTTP(ctx, keys, q, bodyHash, s.name, a.Region, a.now())
	}
	if err != nil {
		return fmt.Errorf("sign for %s: %w", action, err)
	}
	client := http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(q) //nolint:gosec // the operator chooses the region, and so the host
	if err != nil {
		return fmt.Errorf("ask AWS to %s: %w", action, err)
	}
	defer res.Body.Close()
	said, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	if err == nil && res.StatusCode != http.StatusOK {
		return fmt.Errorf("AWS refuses to %s with %d: %s", action, res.StatusCode, refusalOf(said))
	}
	if err == nil && reply != nil {
		err = xml.Unmarshal(said, reply)
	}
	if err != nil {
		return fmt.Errorf("read what AWS says to %s: %w", action, err)
	}
	return nil
}

// endpointOf returns the URL of a service.
func (a awsAccount) endpointOf(s awsService) string {
	if url := a.getenv(s.endpoint); url != "" {
		return strings.TrimRight(url, "/") + "/"
	}
	domain := "amazonaws.com"
	if strings.HasPrefix(a.Region, "cn-") {
		domain += ".cn"
	}
	return "https://" + s.name + "." + a.Region + "." + domain + "/"
}

// refusalOf returns AWS's message about a request that it refused.
func refusalOf(body []byte) string {
	var said struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	if xml.Unmarshal(body, &said) != nil || said.Code == "" {
		return cellText(string(body))
	}
	return untrusted.Text(said.Code + ": " + said.Message)
}
