// Package secret reads one secret of AWS Secrets Manager.
//
// A reading is bounded in time and size and leaves nothing behind: no cache, no
// connection, no goroutine. When to read, and what the secret means, is the
// caller's. No error contains what was read.
package secret

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/hostfacts/hostfacts/pkg/awshttp"
)

const (
	// DefaultTimeout is for a reading as a whole: a payer waits for it.
	DefaultTimeout = 2 * time.Second
	// maxAttempts within it, of which each has half: a first packet that was
	// lost must not use all of it up.
	maxAttempts = 2
	// maxReply is above what the largest secret, 64 KiB, needs in JSON.
	maxReply = 512 << 10
)

// ErrNoAnswer says that Secrets Manager was not reached, or could not answer:
// nothing is known about the secret.
var ErrNoAnswer = errors.New("secrets manager did not answer")

// arnForm is a complete ARN. A permission on exactly this secret, and the
// region to ask in, follow from it.
var arnForm = regexp.MustCompile(`^arn:aws[a-z-]*:secretsmanager:([a-z0-9-]+):[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}$`)

// Region is the region of a secret; ok is false when arn is no complete ARN of
// one.
func Region(arn string) (region string, ok bool) {
	m := arnForm.FindStringSubmatch(arn)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// Config says which secret, and who asks.
type Config struct {
	ARN string // complete; see Region
	// Credentials are asked for on every attempt. Required.
	Credentials func(context.Context) (aws.Credentials, error)
	// Endpoint replaces the region's own, for a local server. Optional.
	Endpoint string
	// Timeout bounds the reading; DefaultTimeout when 0.
	Timeout time.Duration
}

// Read returns the secret's current value. The error is ErrNoAnswer, or says
// why there is no value to be had.
func Read(ctx context.Context, c Config) ([]byte, error) {
	region, ok := Region(c.ARN)
	if !ok {
		return nil, errors.New("not the complete ARN of a secret")
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if _, err := c.Credentials(ctx); err != nil {
		return nil, fmt.Errorf("secrets manager: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	options := secretsmanager.Options{
		Region:      region,
		Credentials: aws.CredentialsProviderFunc(c.Credentials),
		HTTPClient:  awshttp.New(awshttp.Config{AttemptTimeout: c.Timeout / maxAttempts, MaxReply: maxReply}),
		Retryer:     retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, c.Timeout/20 }),
	}
	if c.Endpoint != "" {
		options.BaseEndpoint = &c.Endpoint
	}
	out, err := secretsmanager.New(options).GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &c.ARN})
	switch {
	case err != nil:
		return nil, explain(err)
	case out.SecretString != nil:
		return []byte(*out.SecretString), nil
	case len(out.SecretBinary) > 0:
		return out.SecretBinary, nil
	}
	return nil, errors.New("secrets manager: the secret has no value")
}

// explain keeps of an error what may be logged. The SDK's text for a reply that
// it cannot read quotes the reply.
func explain(err error) error {
	var api interface {
		error
		ErrorCode() string
	}
	var status interface {
		error
		HTTPStatusCode() int
	}
	answered := errors.As(err, &status) && status.HTTPStatusCode() != 0
	switch {
	case answered && status.HTTPStatusCode() >= http.StatusInternalServerError,
		errors.As(err, &api) && strings.Contains(api.ErrorCode(), "Throttling"):
		return fmt.Errorf("%w: status %d", ErrNoAnswer, status.HTTPStatusCode())
	case errors.As(err, &api):
		return fmt.Errorf("secrets manager: %.64q", api.ErrorCode())
	case answered:
		return fmt.Errorf("secrets manager: the reply with status %d cannot be read", status.HTTPStatusCode())
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}
