package boot

import (
	"context"
	"errors"

	"github.com/hostfacts/hostfacts/pkg/boot/secret"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
)

// credentials reads the facilitator's. Unreadable ones do not stop the
// service: its free part works, paid calls answer facilitator_misconfigured
// and /ready says so. Contradicting ones are a fault. The secret that they are in
// is returned, too, nil without one.
func (e *environment) credentials() (facilitator.Credentials, *sharedSecret) {
	id, key := e.text(varFacilitatorKeyID, ""), e.text(varFacilitatorKeySecret, "")
	token, arn := e.text(varFacilitatorToken, ""), e.text(varFacilitatorSecret, "")
	if (id == "") != (key == "") {
		e.fault(varFacilitatorKeyID, "and %s go together", varFacilitatorKeySecret)
	}
	if token != "" && (id != "" || key != "") {
		e.fault(varFacilitatorToken, "and %s are both set: choose one", varFacilitatorKeyID)
	}
	if arn != "" && (id != "" || key != "" || token != "") {
		e.fault(varFacilitatorSecret, "and other credentials of the facilitator are both set: choose one")
	}
	switch {
	case arn != "":
		s := e.secret(arn)
		return s.credentials(), s
	case token != "":
		return lazily(func() (facilitator.Credentials, error) { return facilitator.Bearer(token) }), nil
	case id != "" && key != "":
		return lazily(func() (facilitator.Credentials, error) { return facilitator.CDP(id, key) }), nil
	}
	return facilitator.None(), nil
}

func lazily(read func() (facilitator.Credentials, error)) facilitator.Credentials {
	return facilitator.Lazy(func(context.Context) (facilitator.Credentials, error) { return read() })
}

// secret is read from Secrets Manager, the first time when somebody pays: a
// challenge asks nobody.
func (e *environment) secret(arn string) *sharedSecret {
	if _, ok := secret.Region(arn); !ok {
		e.fault(varFacilitatorSecret, "must be the complete ARN of a Secrets Manager secret, with its six random characters at the end")
	}
	return &sharedSecret{config: secret.Config{ARN: arn, Credentials: e.awsKeys(), Endpoint: e.text(varSecretsEndpoint, "")}}
}

// credentials are the facilitator's of a secret.
func (s *sharedSecret) credentials() facilitator.Credentials {
	return facilitator.Lazy(func(ctx context.Context) (facilitator.Credentials, error) {
		doc, err := s.fresh(ctx)
		if errors.Is(err, secret.ErrNoAnswer) {
			return nil, facilitator.Unreachable(err)
		}
		if err != nil {
			return nil, err
		}
		return facilitator.ParseCredentials(doc)
	})
}
