package boot

import (
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
)

// values are what the variables say. Each is the zero value where its variable is empty and
// has no default, and where it has a fault.
type values struct {
	baseURL           string
	selling           bool
	payTo             string
	former            *formerTerms
	network           string
	asset             string
	tokenName         string
	tokenVersion      string
	primary, fallback facilitatorValues
	receiptKey        ed25519.PrivateKey
	receiptKeys       []ed25519.PublicKey
	nodes             nodes
	windowSeconds     int
	perMinute         int
	single, bundle    int
	ledgerTable       string
	resolvers         []string
	bootstrapURL      string
	proofs            []string
	contact           string
	claims            map[string]string
	logLevel          slog.Level
	stack             string

	region            string
	accessKeyID       string
	secretAccessKey   string
	sessionToken      string
	function, version string
	dynamoEndpoint    string
	secretsEndpoint   string

	ledgerFile   string
	ledgerAccept string
	lowestPrice  *big.Int
	localAddr    string
}

// facilitatorValues are what the variables say of one facilitator.
type facilitatorValues struct {
	url              string
	keyID, keySecret string
	token            string
	secret           secretName
}

// environment is the variables that one program reads, parsed, and every fault in them.
type environment struct {
	values
	texts    map[string]string // with the defaults in place
	meanings map[string]string
	faulty   map[string]bool // the variables that have a fault
	faults   []string
}

// readEnvironment reads and parses the variables that a program reads. An empty or blank one
// is its default.
func readEnvironment(get func(string) string, reader Readers) *environment {
	e := &environment{texts: map[string]string{}, meanings: map[string]string{}, faulty: map[string]bool{}}
	for _, s := range settings(&e.values) {
		if s.Readers&reader == 0 {
			continue
		}
		text := strings.TrimSpace(get(s.Name))
		if text == "" {
			text = s.Default
		}
		e.texts[s.Name] = text
		e.meanings[s.Name] = s.Meaning
		if text == "" {
			continue
		}
		if err := s.parse(text); err != nil {
			e.faultsOf(s.Name, err)
		}
	}
	return e
}

// text is a variable as it was written. One that the program does not read panics.
func (e *environment) text(name string) string {
	text, read := e.texts[name]
	if !read {
		panic("boot: " + name + " is not a setting of this program")
	}
	return text
}

// require makes it a fault that a variable is empty.
func (e *environment) require(name string) {
	if e.text(name) == "" {
		e.fault(name, "is not set: %s", e.meanings[name])
	}
}

// fault notes what is wrong with a variable.
func (e *environment) fault(name, format string, args ...any) {
	e.faulty[name] = true
	e.faults = append(e.faults, name+" "+fmt.Sprintf(format, args...))
}

// faultsOf notes an error, which may be several ones that errors.Join has joined.
func (e *environment) faultsOf(name string, err error) {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		e.fault(name, "%v", err)
		return
	}
	for _, err := range joined.Unwrap() {
		e.fault(name, "%v", err)
	}
}

// err is every fault in one error, a line each, once however often the variable was
// required.
func (e *environment) err() error {
	slices.Sort(e.faults)
	faults := slices.Compact(e.faults)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("the configuration has %d fault(s):\n%s", len(faults), strings.Join(faults, "\n"))
}
