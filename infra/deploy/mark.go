package main

import (
	"context"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
)

// mark writes into the ledger whose it is.
func (d desk) mark(context.Context, stackfile.File, running) error { return nil }
