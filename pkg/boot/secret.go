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
	// secretTimeout is for a reading as a whole: a payer waits for it.
	secretTimeout = 2 * time.Second
	// secretAttempts within it, of which each has half: a first packet that was
	// lost must not use all of it up.
	secretAttempts = 2
	// maxSecretReply is above what the largest secret, 64 KiB, needs in JSON.
	maxSecretReply = 512 << 10
)

// errSecretSilent says that Secrets Manager was not reached, or could not answer:
// nothing is known about the secret.
var errSecretSilent = fmt.Errorf("%w: secrets manager did not answer", facilitator.ErrUnreachable)

// fetchSecret returns the current value of a secret. An endpoint is asked in place of AWS's
// own. attempt is the time limit of each of secretAttempts. The error is errSecretSilent, or
// says why the secret has no value. A reading is bounded in size and leaves nothing behind:
// no cache, no connection, no goroutine. No error contains what was read.
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

// explainSecret keeps of an error what may be logged. The SDK's text for a reply that
// it cannot read quotes the reply.
func explainSecret(err error) error {
	api, named := errors.AsType[smithy.APIError](err)
	status := 0 // of the reply, if there was one
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

// rereadAfter is the least time between two readings of a secret, so that a peer that
// rejects what is in it does not make us read it all the time.
const rereadAfter = time.Minute

// secret is a secret that configures several things. It is read when one of them
// first needs it, which is when somebody pays, and again after a reading that failed and
// after what it holds has failed one of them, at most once a minute.
type secret struct {
	load func(context.Context) ([]byte, error)

	mu  sync.Mutex // held while the secret is read
	doc []byte     // as it was read last; nil before
	err error      // of the last reading
	at  time.Time  // of the last reading

	wrong atomic.Bool // what it holds has failed
}

// failed says that what the secret holds did not work.
func (s *secret) failed() { s.wrong.Store(true) }

// fromSecret returns something that the secret holds, decoded. No error quotes the secret,
// unless decode's does.
func fromSecret[T any](ctx context.Context, s *secret, now time.Time, decode func(doc []byte) (T, error)) (v T, err error) {
	doc, err := s.document(ctx, now)
	if err != nil {
		return v, fmt.Errorf("read the secret: %w", err)
	}
	if v, err = decode(doc); err != nil {
		s.failed()
	}
	return v, err
}

// document returns the secret, and loads it first where that is due.
func (s *secret) document(ctx context.Context, now time.Time) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// By the wall clock: the monotonic one may stand still while Lambda has the process
	// frozen. A clock that was set back does not delay a reading.
	since := now.Sub(s.at)
	tooSoon := !s.at.IsZero() && since >= 0 && since < rereadAfter
	if (s.doc == nil || s.wrong.Load()) && !tooSoon {
		doc, err := s.loadObject(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err() // the caller gave up; the minute's one reading is not used up
		}
		s.at = now.Round(0)
		s.err = err
		if err == nil {
			s.doc = doc
			s.wrong.Store(false)
		}
	}
	if s.doc != nil { // what was refused once is better than nothing
		return s.doc, nil
	}
	return nil, s.err
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
		return nil, errors.New("the secret is not a JSON object") // its text would quote the secret
	}
	return doc, nil
}
