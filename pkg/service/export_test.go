package service

import (
	"reflect"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// Result is the type of an operation's answer.
func (op Operation) Result() reflect.Type { return reflect.TypeOf(op.result) }

// Timeout is what an operation answers that does not end in time.
func (op Operation) Timeout() fault.Code { return op.timeout }
