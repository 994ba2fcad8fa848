package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// Mark is an item in a ledger's table. It says that the table is the ledger of a stack. If the
// stack is deployed by mistake with another table, such as an empty one, that table has no
// mark of the stack. The programs that sell never write a mark, because they would mark the
// wrong table as well. Only an operator or the command that deploys writes it. A table that
// several stacks share has one mark for each stack. A mark remains when its stack is deleted,
// and every copy of the table contains it.
type Mark struct {
	Stack   string
	Payee   string    // the recipient of the stack's payments
	Origin  string    // the public origin of a stack without BASE_URL; may be empty
	Written time.Time // in whole seconds
	By      string    // who wrote the mark; only operators read this
}

// markItem is a mark as the table stores it. It never expires.
type markItem struct {
	Key     string `dynamodbav:"pk"`
	Stack   string `dynamodbav:"stack"`
	Payee   string `dynamodbav:"payee"`
	Origin  string `dynamodbav:"origin,omitempty"`
	Written int64  `dynamodbav:"written"` // in Unix seconds
	By      string `dynamodbav:"written_by"`
}

// markKey returns the key of a stack's mark. It differs from every payment's key, because those
// begin with a CAIP-2 network.
func markKey(stack string) string { return "stack|" + stack }

// ErrMarked is the error for a table that is already marked for the stack with another payee.
var ErrMarked = errors.New("the table is marked for another payee")

// LoadMark returns the mark of a stack, or nil if the table has none.
func (t Table) LoadMark(ctx context.Context, stack string) (*Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, dynamo.DefaultTimeout)
	defer cancel()
	key := map[string]types.AttributeValue{dynamo.AttrKey: &types.AttributeValueMemberS{Value: markKey(stack)}}
	api := dynamo.APIOf(dynamo.NewClient(t.AWS))
	out, err := api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &t.Name,
		Key:            key,
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, fmt.Errorf("read the mark of stack %s: %w", stack, err)
	}
	if len(out.Item) == 0 {
		return nil, nil
	}
	var it markItem
	if err := attributevalue.UnmarshalMap(out.Item, &it); err != nil {
		return nil, fmt.Errorf("read the mark of stack %s: %w", stack, err)
	}
	return &Mark{
		Stack:   it.Stack,
		Payee:   it.Payee,
		Origin:  it.Origin,
		Written: time.Unix(it.Written, 0).UTC(),
		By:      it.By,
	}, nil
}

// SetMark marks the table as the ledger of the stack in m. It returns the previous mark, or nil
// if there was none. If the previous mark has another payee and replace is false, SetMark keeps
// that mark and returns ErrMarked. If m has no Origin, the previous Origin is kept. SetMark
// changes no other item.
func (t Table) SetMark(ctx context.Context, m Mark, replace bool) (before *Mark, err error) {
	before, err = t.LoadMark(ctx, m.Stack)
	switch {
	case err != nil:
		return nil, err
	case before != nil && !strings.EqualFold(before.Payee, m.Payee) && !replace:
		return before, ErrMarked
	}
	// The condition protects a mark with another payee that was written since the table was
	// read.
	condition := "attribute_not_exists(" + dynamo.AttrKey + ")"
	var values map[string]types.AttributeValue
	if before != nil {
		m.Origin = cmp.Or(m.Origin, before.Origin)
		condition = "payee = :read"
		values = map[string]types.AttributeValue{":read": &types.AttributeValueMemberS{Value: before.Payee}}
	}
	it, err := attributevalue.MarshalMap(markItem{markKey(m.Stack), m.Stack, m.Payee, m.Origin, m.Written.Unix(), m.By})
	if err != nil {
		return before, fmt.Errorf("write the mark of stack %s: %w", m.Stack, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dynamo.DefaultTimeout)
	defer cancel()
	api := dynamo.APIOf(dynamo.NewClient(t.AWS))
	_, err = api.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                 &t.Name,
		Item:                      it,
		ConditionExpression:       &condition,
		ExpressionAttributeValues: values,
	})
	if _, changed := errors.AsType[*types.ConditionalCheckFailedException](err); changed {
		return before, fmt.Errorf("somebody else has marked the table for stack %s meanwhile: look again", m.Stack)
	}
	if err != nil {
		return before, fmt.Errorf("write the mark of stack %s: %w", m.Stack, err)
	}
	return before, nil
}

// check returns nil if the mark matches the deployment. Otherwise it returns an error whose
// text /ready may show. While FORMER_TERMS is set, the mark may have the former payee, because
// the mark is rewritten only after the deployment that changes the payee.
func (m *Mark) check(c Config) error {
	command := fmt.Sprintf("LEDGER_TABLE=… AWS_REGION=… STACK_NAME=%s PAY_TO=%s make mark-ledger", c.Stack, c.Terms.PayTo)
	switch {
	case m == nil || m.Stack != c.Stack:
		return service.Public("the table is not marked as the ledger of stack " + c.Stack +
			", so it may not be the table that was used before. If it is the right table: " + command)
	case strings.EqualFold(m.Payee, c.Terms.PayTo):
		return nil
	case c.Former != nil && strings.EqualFold(m.Payee, c.Former.Terms.PayTo):
		return nil
	}
	return service.Public("the table is marked for the payee " + untrusted.Quote(m.Payee, untrusted.Max) +
		", which is not PAY_TO. If the payee was changed: " + command + " FORCE=1")
}

// markProbe returns a probe that checks whether the ledger's table has the deployment's mark.
// It returns false if there is no table or the deployment has no name. The probe is optional,
// because the service works without a mark.
func (c Config) markProbe() (service.Probe, bool) {
	check := func(ctx context.Context) error {
		m, err := c.Ledger.LoadMark(ctx, c.Stack)
		if err != nil {
			return err
		}
		return m.check(c)
	}
	return service.Probe{
		Name:     service.ProbeMark,
		Optional: true,
		Check:    check,
	}, c.Ledger.Name != "" && c.Stack != ""
}

// publicOrigin returns the origin at which the public reaches the deployment. This is
// BASE_URL, or else the origin in the ledger's mark. The mark stores the origin because the
// template cannot tell a function the domain name of the function's API. publicOrigin returns
// "" if neither origin is known, or if the origin is not https.
func (c Config) publicOrigin(ctx context.Context) string {
	origin := c.BaseURL
	if origin == "" && c.Ledger.Name != "" && c.Stack != "" {
		m, err := c.Ledger.LoadMark(ctx, c.Stack)
		if err != nil || m == nil { // markProbe reports the problem
			return ""
		}
		origin = m.Origin
	}
	if strings.HasPrefix(origin, "https://") {
		return origin
	}
	return ""
}
