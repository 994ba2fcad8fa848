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
	invoked := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"})
	for name, c := range map[string]struct {
		ctx  context.Context
		log  func(*slog.Logger) *slog.Logger
		want any
	}{
		"in an invocation":      {invoked, func(l *slog.Logger) *slog.Logger { return l }, "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"},
		"without a deadline":    {context.WithoutCancel(invoked), func(l *slog.Logger) *slog.Logger { return l }, "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"},
		"with attributes":       {invoked, func(l *slog.Logger) *slog.Logger { return l.With("a", 1) }, "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"},
		"outside":               {t.Context(), func(l *slog.Logger) *slog.Logger { return l }, nil},
		"a context without one": {lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{}), func(l *slog.Logger) *slog.Logger { return l }, nil},
	} {
		var out bytes.Buffer
		c.log(lambdahttp.Log(slog.New(slog.NewJSONHandler(&out, nil)))).InfoContext(c.ctx, "m", "b", 2)
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line[lambdahttp.LambdaRequestID] != c.want || line["b"] != 2.0 || line["msg"] != "m" {
			t.Errorf("%s: %s", name, &out)
		}
	}
}
