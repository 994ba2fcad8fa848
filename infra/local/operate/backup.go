package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
)

// errBackupOfTable is the error of the command backup if the ledger is a DynamoDB table. Such a
// table is backed up by AWS.
var errBackupOfTable = errors.New("the ledger is a DynamoDB table, which AWS backs up: make restore copies it. To back up LEDGER_FILE, unset LEDGER_TABLE")

// backup writes a copy of the ledger file, even while a service has it open, and prints the
// name and the size of the copy.
func backup(ctx context.Context, o order) error {
	return o.withLedger(false, func(l ledgerSession) error {
		store, ok := l.rows.(*file.Store)
		if !ok {
			return errBackupOfTable
		}
		to := backupName(l.name, o.now().UTC().Format("20060102T150405Z"))
		if len(o.args) > 0 {
			to = o.args[0]
		}
		records, err := store.Backup(ctx, to)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: nothing was written; name another file", err)
		}
		if err != nil {
			return err
		}
		info, err := os.Stat(to)
		if err != nil {
			return err
		}
		printFacts(o.out, "ledger", l.name, "copy", to)
		fmt.Fprintf(o.out, "has        %d records in %d bytes; to inspect it: LEDGER_FILE=%s make owed\n", records, info.Size(), to)
		return nil
	})
}

// backupName returns the name for a copy of a file: the file's name with the given time in it.
func backupName(path, at string) string {
	ending := filepath.Ext(path)
	return strings.TrimSuffix(path, ending) + "-" + at + ending
}
