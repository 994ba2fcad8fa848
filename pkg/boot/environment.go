package boot

import (
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
)

// values holds the parsed variables. A value is zero if its variable is empty and has no
// default, or if its variable has a fault.
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
	nodes             nodeChoice
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

// facilitatorValues holds the parsed variables of one facilitator.
type facilitatorValues struct {
	url              string
	keyID, keySecret string
	token            string
	secret           secretName
}

// environment holds the parsed variables that one program reads, and all faults in them.
type environment struct {
	values
	textOf    map[string]string // the variables' texts, including defaults
	meaningOf map[string]string
	hasFault  map[string]bool // whether a variable has a fault, by name
	faults    []string
}

// readEnvironment reads and parses the variables that a program reads. If a variable is empty
// or blank, it has its default.
func readEnvironment(get func(string) string, reader Readers) *environment {
	e := &environment{textOf: map[string]string{}, meaningOf: map[string]string{}, hasFault: map[string]bool{}}
	for _, s := range settings(&e.values) {
		if s.Readers&reader == 0 {
			continue
		}
		text := strings.TrimSpace(get(s.Name))
		if text == "" {
			text = s.Default
		}
		e.textOf[s.Name] = text
		e.meaningOf[s.Name] = s.Meaning
		if text == "" {
			continue
		}
		if err := s.parse(text); err != nil {
			e.addFaults(s.Name, err)
		}
	}
	return e
}

// text returns the text of a variable. It panics if the program does not read the variable.
func (e *environment) text(name string) string {
	text, read := e.textOf[name]
	if !read {
		panic("boot: " + name + " is not a setting of this program")
	}
	return text
}

// require adds a fault if a variable is empty.
func (e *environment) require(name string) {
	if e.text(name) == "" {
		e.addFault(name, "is not set: %s", e.meaningOf[name])
	}
}

// addFault adds a fault to a variable.
func (e *environment) addFault(name, format string, args ...any) {
	e.hasFault[name] = true
	e.faults = append(e.faults, name+" "+fmt.Sprintf(format, args...))
}

// addFaults adds an error to the faults of a variable. If errors.Join has made the error, each
// of the joined errors is a separate fault.
func (e *environment) addFaults(name string, err error) {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		e.addFault(name, "%v", err)
		return
	}
	for _, err := range joined.Unwrap() {
		e.addFault(name, "%v", err)
	}
}

// err returns one error with all faults, each on its own line and without repetitions. It
// returns nil if there are no faults.
func (e *environment) err() error {
	slices.Sort(e.faults)
	faults := slices.Compact(e.faults)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("the configuration has %d fault(s):\n%s", len(faults), strings.Join(faults, "\n"))
}
