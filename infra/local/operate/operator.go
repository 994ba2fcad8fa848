package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// endpointSTS is the variable of an endpoint that says who somebody is, in place of AWS.
const endpointSTS = "AWS_ENDPOINT_URL_STS"

// operator names who runs this, for the record and for the person who comes next: the
// principal as AWS knows it, whose credentials write to the table, or beside a ledger on this
// machine its user. A principal that cannot be read is an error: no other name is put in its
// place.
func (l opened) operator(ctx context.Context) (string, error) {
	return nameOf(ctx, l.principal, "the record of a refund")
}

// nameOf is the name of the principal, for what is to name it; of the user of this machine
// where principal is nil.
func nameOf(ctx context.Context, principal func(context.Context) (string, error), record string) (string, error) {
	if principal == nil {
		return localUser(), nil
	}
	who, err := principal(ctx)
	if err != nil {
		return "", fmt.Errorf("nothing was written, because AWS does not say who you are, and %s must name you: %s", record, untrusted.Text(err.Error()))
	}
	return untrusted.Text(who), nil
}

// localUser is the user of this machine.
func localUser() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	at, err := os.Hostname()
	if err != nil {
		at = "unknown"
	}
	return plain(name + "@" + at)
}

// identities is STS, which says who somebody is.
func identities() awsService {
	return awsService{name: "sts", version: "2011-06-15", endpoint: endpointSTS}
}

// principalOf is who the credentials of a table belong to; nil for a table that is not in
// AWS, unless something else is named that can be asked.
func (o order) principalOf(t boot.Table) (func(context.Context) (string, error), error) {
	if !t.InAWS() && o.getenv(endpointSTS) == "" {
		return nil, nil
	}
	a, err := o.awsAccount()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		var said struct {
			Arn string `xml:"GetCallerIdentityResult>Arn"`
		}
		err := a.request(ctx, identities(), "GetCallerIdentity", nil, &said)
		if err == nil && said.Arn == "" {
			err = errors.New("its answer names nobody")
		}
		return said.Arn, err
	}, nil
}
