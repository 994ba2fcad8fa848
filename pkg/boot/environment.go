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
	texts    map[string]string // the variables' texts, including defaults
	meanings map[string]string
	faulty   map[string]bool // whether a variable has a fault, by name
	faults   []string
}

// readEnvironment reads and parses the variables that a program reads. If a variable is empty
// or blank, it has its default.
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

// text returns the text of a variable. It panics if the program does not read the variable.
func (e *environment) text(name string) string {
	text, read := e.texts[name]
	if !read {
		panic("boot: " + name + " is not a setting of this program")
	}
	return text
}

// require adds a fault if a variable is empty.
func (e *environment) require(name string) {
	if e.text(name) == "" {
		e.fault(name, "is not set: %s", e.meanings[name])
	}
}

// fault adds a fault to a variable.
func (e *environment) fault(name, format string, args ...any) {
	e.faulty[name] = true
	e.faults = append(e.faults, name+" "+fmt.Sprintf(format, args...))
}

// faultsOf adds an error to the faults of a variable. If errors.Join has made the error, each
// of the joined errors is a separate fault.
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
