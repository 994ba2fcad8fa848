package service

import "reflect"

// Result is the type of an operation's answer.
func (op Operation) Result() reflect.Type { return reflect.TypeOf(op.result) }
