package service

import (
	"net/url"
	"reflect"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Result is the type of an operation's answer.
func (op Operation) Result() reflect.Type { return reflect.TypeOf(op.result) }

// Timeout is what an operation answers that does not end in time.
func (op Operation) Timeout() fault.Code { return op.timeout.Code }

// Slipped refuses a slip in the name of a parameter.
func Slipped(op catalog.Operation, sent url.Values) error { return slipped(op, sent) }
