package lambdahttp

import (
	"context"
	"log/slog"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// LambdaRequestID is the attribute of log lines that holds Lambda's id of the
// invocation, which Lambda's own lines and its metrics have. The gateway's id is
// another one.
const LambdaRequestID = "lambda_request_id"

// Log returns a log whose lines say which invocation they belong to, as far as they
// are written with its context.
func Log(l *slog.Logger) *slog.Logger { return slog.New(identified{l.Handler()}) }

type identified struct{ slog.Handler }

// Handle implements slog.Handler.
func (h identified) Handle(ctx context.Context, r slog.Record) error {
	if lc, ok := lambdacontext.FromContext(ctx); ok && lc.AwsRequestID != "" {
		r = r.Clone()
		r.AddAttrs(slog.String(LambdaRequestID, lc.AwsRequestID))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h identified) WithAttrs(attrs []slog.Attr) slog.Handler {
	return identified{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h identified) WithGroup(name string) slog.Handler {
	return identified{h.Handler.WithGroup(name)}
}
