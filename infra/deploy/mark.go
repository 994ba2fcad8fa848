package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/hostfacts/hostfacts/pkg/boot"
)

// mark writes a mark into the ledger's table. The mark says that the table belongs to this
// stack and payee. If the stack later gets another table, reconcile does not find the mark
// there, and pages somebody. If the table already has a mark for another payee, that mark is
// replaced only if this deployment changes the payee.
func (d desk) mark(ctx context.Context, p plan, now stackState) error {
	c, err := awsConfig(ctx, p.file)
	if err != nil {
		return err
	}
	who, err := sts.NewFromConfig(c).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return fmt.Errorf("ask AWS who this is: %w", err)
	}
	table := boot.Table{Name: now.outputs[outputLedger], AWS: c}
	m := boot.Mark{
		Stack:   p.file.Stack,
		Payee:   p.file.Parameters[parameterPayee],
		Written: d.now(),
		By:      aws.ToString(who.Arn),
	}
	if p.file.Parameters["BaseUrl"] == "" {
		m.Origin = now.outputs[outputOrigin] // if BASE_URL is not set, reconcile checks the origin that is in the mark
	}
	before, err := table.SetMark(ctx, m, p.changesPayee())
	if errors.Is(err, boot.ErrMarked) {
		return fmt.Errorf("%w (%s, by %s). If it is the right table: LEDGER_TABLE=%s AWS_REGION=%s STACK_NAME=%s PAY_TO=%s make mark-ledger FORCE=1",
			err, formatValue(before.Payee), formatValue(before.By), table.Name, p.file.Region, m.Stack, m.Payee)
	}
	return err
}

// changesPayee reports whether the deployment changes the payee.
func (p plan) changesPayee() bool {
	for _, c := range p.changes() {
		if c.name == "payee" {
			return true
		}
	}
	return false
}
