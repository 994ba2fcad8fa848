package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

const (
	// requestTimeout is the time-out of one request to Secrets Manager.
	requestTimeout = 10 * time.Second
	// maxReply is the size limit of a reply, in bytes. A reply with the largest possible secret
	// (64 KiB) is smaller.
	maxReply = 512 << 10

	stageCurrent = "AWSCURRENT" // the stage of the version that the functions read
)

// vault reads and writes one secret of Secrets Manager.
type vault struct {
	api    *secretsmanager.Client
	name   string
	region string
}

// storedSecret is the secret as it was read.
type storedSecret struct {
	exists  bool
	region  string
	arn     string // the complete ARN
	version string
	doc     []byte
}

// newVault returns the vault of the secret with the given name or ARN. An ARN also names the
// region; for a name, the region is that of the configuration.
func newVault(c aws.Config, name string) vault {
	if parts := strings.Split(name, ":"); len(parts) == 7 && parts[0] == "arn" {
		c.Region = parts[3]
	}
	c.HTTPClient = dynamo.HTTPClient(requestTimeout, maxReply, requestTimeout)
	return vault{secretsmanager.NewFromConfig(c), name, c.Region}
}

// load reads the secret. If the secret does not exist, load returns no error and a
// storedSecret whose field exists is false.
func (v vault) load(ctx context.Context) (storedSecret, error) {
	out, err := v.api.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{
		SecretId:     &v.name,
		VersionStage: aws.String(stageCurrent),
	})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return storedSecret{region: v.region}, nil
	}
	if err != nil {
		return storedSecret{}, v.requestError("read", err)
	}
	doc := out.SecretBinary
	if out.SecretString != nil {
		doc = []byte(*out.SecretString)
	}
	return storedSecret{
		exists:  true,
		region:  v.region,
		arn:     aws.ToString(out.ARN),
		version: aws.ToString(out.VersionId),
		doc:     doc,
	}, nil
}

// write writes the document as the new value of the secret, and returns the ARN of the secret.
// If the secret was missing when it was read, write creates it. If somebody has changed the
// secret since then, write changes nothing and returns an error.
func (v vault) write(ctx context.Context, was storedSecret, doc []byte) (arn string, err error) {
	if !was.exists {
		return v.create(ctx, doc)
	}
	return was.arn, v.replace(ctx, was, doc)
}

func (v vault) create(ctx context.Context, doc []byte) (arn string, err error) {
	switch {
	case strings.Contains(v.name, ":"):
		return "", errors.New("there is no secret with that ARN. To create one, set NAME to a name")
	case !regexp.MustCompile(`^[A-Za-z0-9/_+=.@-]{1,500}$`).MatchString(v.name):
		return "", errors.New("NAME must be at most 500 letters, digits and /_+=.@-")
	case regexp.MustCompile(`-[A-Za-z0-9]{6}$`).MatchString(v.name):
		return "", errors.New("NAME must not end in a hyphen and six characters: AWS appends such a suffix, and would confuse the two")
	}
	out, err := v.api.CreateSecret(ctx, &secretsmanager.CreateSecretInput{
		Name:         &v.name,
		SecretString: aws.String(string(doc)),
		Description:  aws.String("Facilitator credentials, chain nodes and the receipt key; changed by make secret"),
	})
	if _, there := errors.AsType[*types.ResourceExistsException](err); there {
		return "", errors.New("a secret with that name exists. If somebody has just created it, run the same command again to add to it; if it has no value, choose another NAME")
	}
	if err != nil {
		return "", v.requestError("make", err)
	}
	return aws.ToString(out.ARN), nil
}

// replace writes the document as a new version, and then makes the new version current in place
// of the version that load returned. AWS refuses the second step if another version has become
// current in the meantime, so no change is lost when two people change the secret at the same
// time.
func (v vault) replace(ctx context.Context, was storedSecret, doc []byte) error {
	token := strings.ToLower(rand.Text())
	stage := "pending-" + rand.Text()
	const least = 32 // the minimum length of a token
	token += strings.Repeat("0", max(0, least-len(token)))
	_, err := v.api.PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{
		SecretId:           &was.arn,
		ClientRequestToken: &token,
		SecretString:       aws.String(string(doc)),
		VersionStages:      []string{stage},
	})
	if err != nil {
		return v.requestError("write a version of", err)
	}
	_, err = v.api.UpdateSecretVersionStage(ctx, &secretsmanager.UpdateSecretVersionStageInput{
		SecretId:            &was.arn,
		VersionStage:        aws.String(stageCurrent),
		RemoveFromVersionId: &was.version,
		MoveToVersionId:     &token,
	})
	if err != nil {
		err = v.checkAfterFailure(ctx, was.version, token, err)
	}
	// Remove the temporary stage. AWS then deletes the version, unless it is current.
	_, unmarked := v.api.UpdateSecretVersionStage(ctx, &secretsmanager.UpdateSecretVersionStageInput{
		SecretId:            &was.arn,
		VersionStage:        &stage,
		RemoveFromVersionId: &token,
	})
	if err == nil && unmarked != nil {
		return fmt.Errorf("the secret was changed. Its version still has the label %s, which does no harm: %w", stage, v.requestError("remove that label", unmarked))
	}
	return err
}

// checkAfterFailure is called after the request to make a new version current has failed. The
// parameter newVersion is the id of that version, and oldVersion is the id of the version that
// it should replace. If the new version is current after all, only the reply was lost, and
// checkAfterFailure returns nil. Otherwise it returns an error that says why the new version
// is not current.
func (v vault) checkAfterFailure(ctx context.Context, oldVersion, newVersion string, cause error) error {
	now, err := v.load(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the secret may or may not have been changed: check it. %w", v.requestError("change", cause))
	case now.version == newVersion:
		return nil
	case now.version != oldVersion:
		return errors.New("nothing was changed: somebody else has changed the secret meanwhile. Run the same command again")
	}
	return v.requestError("change", cause)
}

// requestError returns an error that says what could not be done with the secret. A refusal by
// AWS is shown in full, because it says who may not do what, or that the secret is being
// deleted. For any other error of AWS, only its code is shown. If the SDK cannot decode a
// reply, its error quotes the reply, so that error is not shown.
func (v vault) requestError(what string, err error) error {
	said, named := errors.AsType[smithy.APIError](err)
	status := 0 // the HTTP status of the reply, or 0 if there was no reply
	if reply, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = reply.HTTPStatusCode()
	}
	switch {
	case named && (said.ErrorCode() == "AccessDeniedException" || said.ErrorCode() == "InvalidRequestException"):
		return fmt.Errorf("%s the secret: %s", what, untrusted.Text(said.ErrorMessage()))
	case named:
		return fmt.Errorf("%s the secret: Secrets Manager says %s", what, untrusted.Text(said.ErrorCode()))
	case status != 0:
		return fmt.Errorf("%s the secret: Secrets Manager answered %d with a body that cannot be read", what, status)
	}
	return fmt.Errorf("%s the secret: Secrets Manager cannot be reached: %w", what, err)
}
