package dynamotable_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamotable"
)

func TestNumberOf(t *testing.T) {
	t.Parallel()
	it := dynamotable.Item{
		"n": dynamotable.Number(-7), "half": &types.AttributeValueMemberN{Value: "1.5"},
		"huge": &types.AttributeValueMemberN{Value: "9223372036854775808"}, "text": dynamotable.Text("7"),
	}
	if n, ok := dynamotable.NumberOf(it, "n"); n != -7 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	for _, name := range []string{"half", "huge", "text", "nothing"} {
		if n, ok := dynamotable.NumberOf(it, name); ok {
			t.Errorf("%s is %d", name, n)
		}
	}
}

// A store's own time for a call counts unless its configuration has another.
func TestOpen(t *testing.T) {
	t.Parallel()
	for want, configured := range map[time.Duration]time.Duration{time.Minute: 0, time.Hour: time.Hour} {
		table := dynamotable.Open(dynamotable.Config[any]{API: 1, Table: "t", Timeout: configured}, time.Minute)
		ctx, cancel := table.Bound(t.Context())
		end, ok := ctx.Deadline()
		cancel()
		if left := time.Until(end); !ok || left > want || left < want-30*time.Second {
			t.Errorf("%v: %v is left", want, left)
		}
	}
	for name, c := range map[string]dynamotable.Config[any]{"no API": {Table: "t"}, "no table": {API: 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			dynamotable.Open(c, time.Minute)
		}()
	}
}
