package simnet

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/catalog"
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

// corpora are all values of all files, by kind.
var corpora = sync.OnceValue(func() map[string][]specimen {
	files := must(filepath.Glob(filepath.Join("testdata", "corpora", "*.txt")))
	if dir := os.Getenv(corporaVar); dir != "" {
		files = append(files, must(filepath.Glob(filepath.Join(dir, "*.txt")))...)
	}
	all := map[string][]specimen{}
	for _, f := range files {
		for _, s := range must(readCorpus(f, "licence: ", "source: ")) {
			switch s.kind {
			case kindRefused, kindName, kindAddress, kindLocation:
			default:
				panic(fmt.Sprintf("%s: no kind %q", s.from, s.kind))
			}
			all[s.kind] = append(all[s.kind], s)
		}
	}
	return all
})

// readCorpus reads lines of a kind, a tab and a quoted value. The first one is a
// comment that says what the file is, and these parts of it.
func readCorpus(file string, parts ...string) ([]specimen, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []specimen
	var faults []error
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		for _, part := range parts {
			if n == 1 && !(strings.HasPrefix(text, "# ") && strings.Contains(text, part)) {
				faults = append(faults, fmt.Errorf("%s does not begin with its %s", file, part))
			}
		}
		if strings.HasPrefix(text, "#") || text == "" {
			continue
		}
		s := specimen{from: fmt.Sprintf("%s:%d", filepath.Base(file), n)}
		var quoted string
		s.kind, quoted, _ = strings.Cut(text, "\t")
		if s.value, err = strconv.Unquote(quoted); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", s.from, err))
		}
		list = append(list, s)
	}
	return list, errors.Join(append(faults, lines.Err())...)
}

// corporaRows are the names of all corpora, and those that the guard's own test
// refuses, asked for through the whole service, and the locations. The addresses
// are among those of specialRows.
func corporaRows() []row {
	ops := catalog.All() // ping, the last, takes no domain
	refused := slices.Concat(corpora()[kindRefused], must(readCorpus(filepath.Join("..", "..", "pkg", "guard", "testdata", "hostile.txt"))))
	if len(refused) < 450 {
		panic(fmt.Sprintf("the corpora have only %d names that are refused", len(refused)))
	}
	var rows []row
	for i, s := range refused {
		rows = append(rows, row{name: s.from, op: ops[i%(len(ops)-1)].Slug, domain: s.value, want: fails(fault.InvalidDomain)})
	}
	connects := []string{"dns", "ssl-check", "headers", "resolve-redirect"}
	for i, s := range corpora()[kindName] {
		rows = append(rows, row{name: s.from, op: connects[i%len(connects)], domain: s.value, want: fails(fault.NXDomain)})
	}
	for i, s := range corpora()[kindLocation] {
		rows = append(rows, row{name: s.from, op: "resolve-redirect", domain: hostname(kindLocation, i), want: want{"hops.0.status": 302}})
	}
	return rows
}

// specialAddrs are addresses that are not public, in every range of the IANA
// special-purpose registries, and those of metadata services.
func specialAddrs() []string {
	var all []string
	for _, s := range corpora()[kindAddress] {
		if !slices.Contains(all, s.value) {
			all = append(all, s.value)
		}
	}
	return all
}

// guardRows are names that lead to addresses that are not public, by every
// tool that connects.
func guardRows() []row {
	var all []row
	for _, op := range []string{"ssl-check", "headers", "resolve-redirect"} {
		all = append(all, alike(op, fails(fault.BlockedAddress), "loopback", "metadata", "alias", "mixed", "mixed6", "mapped")...)
	}
	return all
}

// The ways to a special address.
const (
	wayDirect   = "direct"
	wayAlias    = "alias"
	wayMixed    = "mixed"
	wayRedirect = "redirect"
	wayTurning  = "turning" // public when asked first
	wayRDAP     = "rdap"    // its registry redirects to it
)

// specialHosts lead to every special address in every way, and redirect to every
// location of the corpora.
func specialHosts() []host {
	var out []host
	for i, a := range specialAddrs() {
		beside := "93.184.3.1" // public and closed, first in the answer
		if netip.MustParseAddr(a).Is6() {
			beside = "2606:2800:220:1::8"
		}
		direct := hostname(wayDirect, i)
		out = append(out,
			host{name: direct, addrs: []string{a}},
			host{name: hostname(wayAlias, i), alias: direct},
			host{name: hostname(wayMixed, i), addrs: []string{beside, a}},
			host{name: hostname(wayRedirect, i), serve: web(to("https://" + direct + "/"))},
			host{name: hostname(wayTurning, i), later: []string{a}, serve: web(chain(1))},
		)
	}
	for i, s := range corpora()[kindLocation] {
		out = append(out, host{name: hostname(kindLocation, i), serve: web(root(status(302, "Location: "+s.value), status(200)))})
	}
	return out
}

// rdapName is the domain whose registry redirects to a special address.
func rdapName(i int) string { return fmt.Sprintf("%s%d.com", wayRDAP, i) }

// specialRedirects are what the registry of com answers about those.
func specialRedirects(at string) map[string]string {
	out := map[string]string{}
	for i := range specialAddrs() {
		out[at+rdapName(i)] = body(302, "", "Location: https://"+hostname(wayDirect, i)+"/domain/"+rdapName(i))
	}
	return out
}

// specialRows are the special addresses in every way, each by one tool.
func specialRows() []row {
	connects := []string{"ssl-check", "headers", "resolve-redirect"}
	var all []row
	for i, a := range specialAddrs() {
		for j, way := range []string{wayDirect, wayAlias, wayMixed, wayRedirect, wayTurning, wayRDAP} {
			r := row{name: a + ", " + way, op: connects[(i+j)%len(connects)], domain: hostname(way, i), want: fails(fault.BlockedAddress)}
			switch way {
			case wayRedirect:
				r.op, r.want = "resolve-redirect", want{"stop_reason": "blocked_address", "hop_count": 1}
			case wayTurning: // resolved once, so it stays what it was
				r.op, r.want = "resolve-redirect", want{"stop_reason": none, "hop_count": 2}
			case wayRDAP:
				r.op, r.domain, r.want = "whois", rdapName(i), fails(fault.RDAPUpstream, "The RDAP server is not at a public address")
			}
			all = append(all, r)
		}
	}
	return all
}
