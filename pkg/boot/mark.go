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

// Mark is an item of a ledger's table which says that the table is the ledger of a stack.
// A stack that is deployed with another table, such as an empty one that CloudFormation has
// just made, finds no mark of this stack there. So no program that sells ever writes one: it is
// written by an operator, or by the command that deploys. Each stack of a table has its own
// mark, which stays when the stack is deleted, and is in every copy of the table.
type Mark struct {
	Stack   string
	Payee   string    // who the stack's payments are made to
	Origin  string    // where the stack is reached that has no BASE_URL; it may be empty
	Written time.Time // to the second
	By      string    // who wrote it, for the person who comes next
}

// markItem is the item of a mark. It never expires.
type markItem struct {
	Key     string `dynamodbav:"pk"`
	Stack   string `dynamodbav:"stack"`
	Payee   string `dynamodbav:"payee"`
	Origin  string `dynamodbav:"origin,omitempty"`
	Written int64  `dynamodbav:"written"` // unix seconds
	By      string `dynamodbav:"written_by"`
}

// markKey is the key of a stack's mark. The keys of payments begin with a CAIP-2 network.
func markKey(stack string) string { return "stack|" + stack }

// ErrMarked says that a table is marked for the stack with another payee.
var ErrMarked = errors.New("the table is marked for another payee")

// LoadMark returns the mark of a stack; nil when the table has none.
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

// SetMark marks the table as the ledger of a stack. It returns the mark that was there
// before, nil if there was none. A mark with another payee stays, and the error is ErrMarked,
// unless replace is set. Without an Origin the one that was there stays. It touches no other
// item.
func (t Table) SetMark(ctx context.Context, m Mark, replace bool) (before *Mark, err error) {
	before, err = t.LoadMark(ctx, m.Stack)
	switch {
	case err != nil:
		return nil, err
	case before != nil && !strings.EqualFold(before.Payee, m.Payee) && !replace:
		return before, ErrMarked
	}
	// Another payee that is written meanwhile is not overwritten.
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

// check says what is wrong with the mark of a deployment in words that anybody may read;
// nil when it is right. The payee of FORMER_TERMS is right while these are set: the mark is
// written again after the deployment that changes the payee.
func (m *Mark) check(c Config) error {
	command := fmt.Sprintf("LEDGER_TABLE=… AWS_REGION=… STACK_NAME=%s PAY_TO=%s make mark-ledger", c.Stack, c.Terms.PayTo)
	switch {
	case m == nil || m.Stack != c.Stack:
		return service.Public("the table is not marked as the ledger of stack " + c.Stack +
			", so it may be another one than before. If it is the right one: " + command)
	case strings.EqualFold(m.Payee, c.Terms.PayTo):
		return nil
	case c.Former != nil && strings.EqualFold(m.Payee, c.Former.Terms.PayTo):
		return nil
	}
	return service.Public("the table is marked for the payee " + untrusted.Quote(m.Payee, untrusted.Max) +
		", which is not PAY_TO. If the payee was changed: " + command + " FORCE=1")
}

// markProbe asks whether the ledger is marked as that of the deployment; false where there
// is no table, or the deployment has no name. The service answers without a mark.
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

// publicOrigin is where strangers reach the deployment: BASE_URL, or else what the ledger's
// mark says, because the functions of a template cannot be told the name of their own API.
// It is empty where neither is known or it is for this machine alone.
func (c Config) publicOrigin(ctx context.Context) string {
	origin := c.BaseURL
	if origin == "" && c.Ledger.Name != "" && c.Stack != "" {
		m, err := c.Ledger.LoadMark(ctx, c.Stack)
		if err != nil || m == nil { // another probe says so
			return ""
		}
		origin = m.Origin
	}
	if strings.HasPrefix(origin, "https://") {
		return origin
	}
	return ""
}
