package boot

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// bootstrapKey is the key of the RDAP bootstrap file in the ledger's table. It differs from
// every payment's key, because those begin with a CAIP-2 network.
const bootstrapKey = "rdap|bootstrap"

// bootstrapFile is a whois.Cache that stores the RDAP bootstrap file in the ledger's table, as
// one item. The item never expires, because an old file is better than none.
type bootstrapFile struct {
	api   dynamo.API
	table string
}

type bootstrapItem struct {
	Key      string `dynamodbav:"pk"`
	Document []byte `dynamodbav:"document"`
	Fetched  int64  `dynamodbav:"fetched"` // in Unix seconds
}

// Get implements whois.Cache.
func (f bootstrapFile) Get(ctx context.Context) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, dynamo.DefaultTimeout)
	defer cancel()
	key := map[string]types.AttributeValue{dynamo.AttrKey: &types.AttributeValueMemberS{Value: bootstrapKey}}
	out, err := f.api.GetItem(ctx, &dynamodb.GetItemInput{TableName: &f.table, Key: key})
	var it bootstrapItem
	if err == nil {
		err = attributevalue.UnmarshalMap(out.Item, &it)
	}
	if err != nil || len(it.Document) == 0 {
		return nil, time.Time{}, err
	}
	return it.Document, time.Unix(it.Fetched, 0).UTC(), nil
}

// Put implements whois.Cache. The last writer wins. DynamoDB refuses a file of more than 400
// KB, and Put then returns an error.
func (f bootstrapFile) Put(ctx context.Context, doc []byte, fetched time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, dynamo.DefaultTimeout)
	defer cancel()
	it, err := attributevalue.MarshalMap(bootstrapItem{bootstrapKey, doc, fetched.Unix()})
	if err == nil {
		_, err = f.api.PutItem(ctx, &dynamodb.PutItemInput{TableName: &f.table, Item: it})
	}
	return err
}
