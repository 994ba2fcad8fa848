package lambdahttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/hostfacts/hostfacts/pkg/lambdahttp"
)

// A line says which invocation it belongs to, also with attributes of its own and at
// the end of a context that lost its deadline; outside of one it says nothing.
func TestLog(t *testing.T) {
	t.Parallel()
	const id = "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"
	invoked := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: id})
	for name, c := range map[string]struct {
		ctx  context.Context
		with []any
		want any
	}{
		"in an invocation":      {invoked, nil, id},
		"without a deadline":    {context.WithoutCancel(invoked), nil, id},
		"with attributes":       {invoked, []any{"a", 1}, id},
		"outside":               {t.Context(), nil, nil},
		"a context without one": {lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{}), nil, nil},
	} {
		var out bytes.Buffer
		lambdahttp.Log(slog.New(slog.NewJSONHandler(&out, nil))).With(c.with...).InfoContext(c.ctx, "m", "b", 2)
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line[lambdahttp.LambdaRequestID] != c.want || line["b"] != 2.0 || line["msg"] != "m" {
			t.Errorf("%s: %s", name, &out)
		}
	}
}
