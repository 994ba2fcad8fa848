package service

import (
	"net/url"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// Slipped refuses a slip in the name of a parameter.
func Slipped(op catalog.Operation, sent url.Values) error { return slipped(op, sent) }
