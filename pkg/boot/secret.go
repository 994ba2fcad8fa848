package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

const (
	// secretTimeout bounds the time for reading a secret, including all attempts. A payer waits
	// during this time.
	secretTimeout = 2 * time.Second
	// secretAttempts is the number of attempts to read a secret. Each attempt has an equal
	// share of secretTimeout, so that a lost first packet does not use up all of the time.
	secretAttempts = 2
	// maxSecretReply limits the reply of Secrets Manager, in bytes. The largest secret has 64
	// KiB, and even the reply with that secret is shorter than this limit.
	maxSecretReply = 512 << 10
)

// errSecretSilent is the error if Secrets Manager was not reached or could not answer. Nothing
// is then known about the secret.
var errSecretSilent = fmt.Errorf("%w: secrets manager did not answer", facilitator.ErrUnreachable)

// fetchSecret returns the current value of a secret. An endpoint that is not empty replaces
// AWS's endpoint. The last argument is the time limit of each attempt. The error is
// errSecretSilent, or says why there is no value. No error contains what was read. The size of
// the reply is bounded. No cache, connection or goroutine remains afterwards.
func fetchSecret(ctx context.Context, name secretName, keys aws.CredentialsProvider, endpoint string, attempt time.Duration) ([]byte, error) {
	options := secretsmanager.Options{
		Region:      name.region,
		Credentials: keys,
		HTTPClient:  dynamo.HTTPClient(attempt, maxSecretReply, 0),
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = secretAttempts
			o.MaxBackoff = attempt / 10
		}),
	}
	if endpoint != "" {
		options.BaseEndpoint = &endpoint
	}
	out, err := secretsmanager.New(options).GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &name.arn})
	switch {
	case err != nil:
		return nil, explainSecret(err)
	case out.SecretString != nil:
		return []byte(*out.SecretString), nil
	case len(out.SecretBinary) > 0:
		return out.SecretBinary, nil
	}
	return nil, errors.New("secrets manager: the secret has no value")
}

// explainSecret returns an error that contains only the parts of err that may be logged. If the
// SDK cannot decode a reply, its error quotes the reply, which may contain the secret.
func explainSecret(err error) error {
	api, named := errors.AsType[smithy.APIError](err)
	status := 0 // the reply's status; 0 if there was no reply
	if reply, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = reply.HTTPStatusCode()
	}
	switch {
	case status >= http.StatusInternalServerError, named && strings.Contains(api.ErrorCode(), "Throttling"):
		return fmt.Errorf("%w: status %d", errSecretSilent, status)
	case named:
		return fmt.Errorf("secrets manager: %.64q", api.ErrorCode())
	case status != 0:
		return fmt.Errorf("secrets manager: the reply with status %d cannot be read", status)
	}
	return fmt.Errorf("%w: %w", errSecretSilent, err)
}

// rereadAfter is the minimum time between two readings of a secret. Without this minimum,
// every payment would read the secret again while the facilitator rejects the credentials in
// it.
const rereadAfter = time.Minute

// secret is a secret with several values: credentials, nodes, and a receipt key. It is read
// when one of its values is first needed. It is read again if the last reading failed or if one
// of its values did not work, but at most once a minute.
type secret struct {
	load func(context.Context) ([]byte, error)

	mu      sync.Mutex // held while the secret is read
	doc     []byte     // the last document that was read; nil before the first
	readErr error      // the error of the last reading
	readAt  time.Time  // the time of the last reading

	hasBadValue atomic.Bool // whether a value in the secret did not work
}

// reportBadValue records that a value in the secret did not work.
func (s *secret) reportBadValue() { s.hasBadValue.Store(true) }

// fromSecret returns the value that the function decode finds in the secret. The error of decode
// must not quote the secret.
func fromSecret[T any](ctx context.Context, s *secret, now time.Time, decode func(doc []byte) (T, error)) (v T, err error) {
	doc, err := s.document(ctx, now)
	if err != nil {
		return v, fmt.Errorf("read the secret: %w", err)
	}
	if v, err = decode(doc); err != nil {
		s.reportBadValue()
	}
	return v, err
}

// document returns the secret. If the secret was not read yet, or one of its values did not
// work, document reads it first.
func (s *secret) document(ctx context.Context, now time.Time) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// This compares wall clock times, because the monotonic clock may stand still while Lambda
	// has the process frozen. If the wall clock was set back, the secret may be read at once.
	since := now.Sub(s.readAt)
	tooSoon := !s.readAt.IsZero() && since >= 0 && since < rereadAfter
	if (s.doc == nil || s.hasBadValue.Load()) && !tooSoon {
		doc, err := s.loadObject(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err() // the caller gave up, so this reading does not count, and the next caller may read at once
		}
		s.readAt = now.Round(0)
		s.readErr = err
		if err == nil {
			s.doc = doc
			s.hasBadValue.Store(false)
		}
	}
	if s.doc != nil { // an earlier document is better than none, even if one of its values did not work
		return s.doc, nil
	}
	return nil, s.readErr
}

// loadObject loads the secret, which must be a JSON object.
func (s *secret) loadObject(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	doc, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(doc, new(map[string]json.RawMessage)) != nil {
		return nil, errors.New("the secret is not a JSON object") // the decoder's error would quote the secret
	}
	return doc, nil
}
