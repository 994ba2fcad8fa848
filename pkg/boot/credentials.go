package boot

import (
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
)

// Members of the facilitator's secret that are not the facilitator's. They are
// repeated in the tags of what reads them.
const (
	secretReceiptKey = "receipt_key"
	secretNodes      = "rpc_urls"
)

// credentialVars name the variables of one facilitator's credentials.
type credentialVars struct{ keyID, keySecret, token, secret string }

func primaryCredentials() credentialVars {
	return credentialVars{varFacilitatorKeyID, varFacilitatorKeySecret, varFacilitatorToken, varFacilitatorSecret}
}

func fallbackCredentials() credentialVars {
	return credentialVars{varFallbackKeyID, varFallbackKeySecret, varFallbackToken, varFallbackSecret}
}

// credentials reads a facilitator's. Unreadable ones do not stop the
// service: its free part works, paid calls answer facilitator_misconfigured
// and /ready says so. Contradicting ones are a fault. The secret that they are in
// is returned, too, nil without one.
func (e *environment) credentials(of credentialVars) (facilitator.Credentials, *sharedSecret) {
	id, key := e.text(of.keyID, ""), e.text(of.keySecret, "")
	token, arn := e.text(of.token, ""), e.text(of.secret, "")
	if (id == "") != (key == "") {
		e.fault(of.keyID, "and %s go together", of.keySecret)
	}
	if token != "" && (id != "" || key != "") {
		e.fault(of.token, "and %s are both set: choose one", of.keyID)
	}
	if arn != "" && (id != "" || key != "" || token != "") {
		e.fault(of.secret, "and other credentials of the facilitator are both set: choose one")
	}
	switch {
	case arn != "":
		s := e.secret(of.secret, arn)
		return s.credentials(), s
	case token != "":
		return lazily(func() (facilitator.Credentials, error) { return facilitator.Bearer(token) }), nil
	case id != "" && key != "":
		return lazily(func() (facilitator.Credentials, error) { return facilitator.CDP(id, key) }), nil
	}
	return facilitator.None(), nil
}

func lazily(read func() (facilitator.Credentials, error)) facilitator.Credentials {
	return facilitator.Lazy(func(context.Context, time.Time) (facilitator.Credentials, error) { return read() }, func() {})
}

// secret is read from Secrets Manager, the first time when somebody pays: a
// challenge asks nobody.
func (e *environment) secret(name, arn string) *sharedSecret {
	if _, ok := secretRegion(arn); !ok {
		e.fault(name, "must be the complete ARN of a Secrets Manager secret, with its six random characters at the end")
	}
	c := secretConfig{ARN: arn, Credentials: e.awsKeys(), Endpoint: e.text(varSecretsEndpoint, "")}
	return newSharedSecret(func(ctx context.Context) ([]byte, error) { return readSecret(ctx, c) })
}

// credentials are the facilitator's of a secret.
func (s *sharedSecret) credentials() facilitator.Credentials {
	return facilitator.Lazy(func(ctx context.Context, now time.Time) (facilitator.Credentials, error) {
		doc, err := s.read(ctx, now)
		if errors.Is(err, errSecretSilent) {
			return nil, facilitator.Unreachable(err)
		}
		if err != nil {
			return nil, err
		}
		creds, err := facilitator.ParseCredentials(doc, secretReceiptKey, secretNodes)
		if err != nil {
			s.failed()
		}
		return creds, err
	}, s.failed)
}
