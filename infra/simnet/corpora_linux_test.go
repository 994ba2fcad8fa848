package simnet

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// corporaVar names a folder of further corpora, in the form of those under
// testdata/corpora. It is for collections that are not ours to hand on.
const corporaVar = "HOSTFACTS_SIMNET_CORPORA"

// The kinds of a corpus's values.
const (
	kindRefused  = "refused"  // a domain that is none: invalid_domain
	kindName     = "name"     // a public name, though it may look like an address; this internet does not have it
	kindAddress  = "address"  // not public, reached in all ways
	kindLocation = "location" // where a redirect leads; nobody of this internet is there but example.com
)

// specimen is a value of a corpus.
type specimen struct {
	from        string // the file, and the line in it
	kind, value string
}

// corpora are all values of all files. Each file says in its first line what
// it is, where it is from and what its licence is.
var corpora = sync.OnceValues(func() ([]specimen, error) {
	files, err := filepath.Glob(filepath.Join("testdata", "corpora", "*.txt"))
	if err != nil {
		return nil, err
	}
	if dir := os.Getenv(corporaVar); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "*.txt"))
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	var all []specimen
	for _, f := range files {
		list, err := readCorpus(f)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
})

// readCorpus reads lines of a kind, a tab and a quoted value.
func readCorpus(file string) ([]specimen, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []specimen
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if n == 1 && !(strings.HasPrefix(text, "# ") && strings.Contains(text, "licence: ") && strings.Contains(text, "source: ")) {
			return nil, fmt.Errorf("%s does not begin with its name, source and licence", file)
		}
		if strings.HasPrefix(text, "#") || text == "" {
			continue
		}
		kind, quoted, _ := strings.Cut(text, "\t")
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		switch kind {
		case kindAddress:
			_, err = netip.ParseAddr(value)
		case kindRefused, kindName, kindLocation:
		default:
			err = fmt.Errorf("no kind %q", kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		list = append(list, specimen{from: fmt.Sprintf("%s:%d", filepath.Base(file), n), kind: kind, value: value})
	}
	return list, lines.Err()
}

// specimens are the values of one kind.
func specimens(kind string) []specimen {
	all, err := corpora()
	if err != nil {
		panic(err) // the files are part of the tests
	}
	var out []specimen
	for _, s := range all {
		if s.kind == kind {
			out = append(out, s)
		}
	}
	return out
}

// corpusLocations are hosts that redirect to every location.
func corpusLocations() []host {
	var out []host
	for i, s := range specimens(kindLocation) {
		out = append(out, host{name: fmt.Sprintf("location%d.hostile.example.com", i), serve: web(once("Location: " + s.value))})
	}
	return out
}

// corporaRows are the names and locations of all corpora; their addresses are
// among those of corpusRows.
func corporaRows() []row {
	tools := []string{"dns", "ssl-check", "headers", "resolve-redirect", "host-intel", "uptime-check", "whois"}
	var rows []row
	for i, s := range specimens(kindRefused) {
		rows = append(rows, row{name: s.from, op: tools[i%len(tools)], domain: s.value, code: fault.InvalidDomain})
	}
	for i, s := range specimens(kindName) {
		rows = append(rows, row{name: s.from, op: tools[i%4], domain: s.value, code: fault.NXDomain})
	}
	for i, s := range specimens(kindLocation) {
		rows = append(rows, row{name: s.from, op: "resolve-redirect", domain: fmt.Sprintf("location%d.hostile.example.com", i), want: want{"hops.0.status": 302}})
	}
	return rows
}
