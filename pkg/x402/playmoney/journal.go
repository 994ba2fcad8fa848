package playmoney

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// journal is the file that keeps the books across restarts, a line a transfer.
type journal struct {
	file *os.File
	size int64 // of the lines that are whole
}

// maxLine bounds a line; a transfer takes some 300 bytes.
const maxLine = 64 << 10

// openJournal opens the file for this process alone, makes it when it is missing, and
// returns the transfers that it holds.
func openJournal(path string) (*journal, []Transfer, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open play-money journal: %w", err)
	}
	j := &journal{file: file}
	var list []Transfer
	if err = lock(file); err != nil {
		err = fmt.Errorf("%w: another process keeps it, whose play-money facilitator FACILITATOR_URL can name", err)
	} else {
		list, err = j.read()
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("play-money journal %s: %w", path, err), file.Close())
	}
	return j, list, nil
}

// read reads every line, and leaves the file so that the next line is a line of
// its own.
func (j *journal) read() (list []Transfer, err error) {
	lines := bufio.NewReaderSize(j.file, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		cut := errors.Is(err, io.EOF)
		switch {
		case cut && len(line) == 0:
			return list, nil
		case err != nil && !cut:
			return nil, fmt.Errorf("line %d: %w", len(list)+1, err)
		}
		var t Transfer
		if err := json.Unmarshal(line, &t); err != nil || t.Key == "" {
			if cut { // by a crash: it was never acknowledged
				return list, j.file.Truncate(j.size)
			}
			// Without it an authorization could execute again.
			return nil, fmt.Errorf("line %d is not a transfer: move the file away to begin without play money spent", len(list)+1)
		}
		list = append(list, t)
		j.size += int64(len(line))
		if cut { // before its end of line: the money has moved
			return list, j.write(nil)
		}
	}
}

// write adds a line. One that cannot be written whole is taken back, or the
// next one would be lost with it.
func (j *journal) write(line []byte) error {
	line = append(line, '\n')
	if _, err := j.file.Write(line); err != nil {
		return errors.Join(fmt.Errorf("write play-money journal: %w", err), j.file.Truncate(j.size))
	}
	j.size += int64(len(line))
	return nil
}
