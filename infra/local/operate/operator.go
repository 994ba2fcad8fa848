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

// endpointSTS is the environment variable that can name an STS endpoint in place of AWS's.
const endpointSTS = "AWS_ENDPOINT_URL_STS"

// operator returns the name of the person who runs the command. The command writes the name
// into the record, where the next operator sees it. If the ledger is in AWS, the name is the
// AWS principal whose credentials write to the table. Otherwise it is the local user. If AWS
// does not name the principal, operator returns an error rather than another name.
func (l ledgerSession) operator(ctx context.Context) (string, error) {
	return nameOf(ctx, l.principal, "the record of a refund")
}

// nameOf returns the name of the AWS principal. If the function principal is nil, it returns
// the local user instead. If AWS does not name the principal, nameOf returns an error. That
// error names the destination: the place into which the command would write the name, such as
// "the mark".
func nameOf(ctx context.Context, principal func(context.Context) (string, error), destination string) (string, error) {
	if principal == nil {
		return localUser(), nil
	}
	who, err := principal(ctx)
	if err != nil {
		return "", fmt.Errorf("nothing was written, because AWS does not say who you are, and %s must name you: %s", destination, untrusted.Text(err.Error()))
	}
	return untrusted.Text(who), nil
}

// localUser returns the name of the current user and of this machine.
func localUser() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	machine, err := os.Hostname()
	if err != nil {
		machine = "unknown"
	}
	return cellText(name + "@" + machine)
}

// stsService returns STS, the service that says to whom credentials belong.
func stsService() awsService {
	return awsService{name: "sts", version: "2011-06-15", endpoint: endpointSTS}
}

// principalOf returns a function that gets the AWS principal whose credentials are used for a
// table. principalOf returns nil for a table that is not in AWS, unless endpointSTS is set.
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
		err := a.request(ctx, stsService(), "GetCallerIdentity", nil, &said)
		if err == nil && said.Arn == "" {
			err = errors.New("its answer names nobody")
		}
		return said.Arn, err
	}, nil
}
