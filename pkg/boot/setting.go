package boot

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Setting is a variable of the environment. Every program parses its environment with the list
// of all settings. The runbook's table of settings is generated from the same list.
type Setting struct {
	Name string
	// Default is the value that an empty variable gets. If there is no Default, the text
	// Otherwise tells the readers of the runbook what an empty variable means.
	Default, Otherwise string
	Meaning            string // an explanation for the operator
	// Template means that the template sets the variable, to one value for all functions. Secret
	// means that the value can contain a secret. Functions that do not read such a variable get
	// it empty.
	Template, Secret bool
	Readers          Readers

	// parse parses and stores a value, which must not be empty. It is nil for a variable that
	// readEnvironment does not read.
	parse func(text string) error
}

// Check returns an error if the value is invalid, regardless of other settings.
func (s Setting) Check(value string) error {
	text := strings.TrimSpace(value)
	if text == "" || s.parse == nil {
		return nil
	}
	return s.parse(text)
}

// Readers is a set of programs that read a setting.
type Readers uint8

const (
	ReadByDocuments Readers = 1 << iota // the function that serves the documents
	ReadByReconcile                     // the function that reconciles
	ReadByOthers                        // every other function
	ReadByLocal                         // the local runner and the operator's commands
	readByAWS                           // commands that need only AWS
)

const (
	readByEverybody = ReadByDocuments | ReadByReconcile | ReadByOthers | ReadByLocal
	readByPaid      = ReadByReconcile | ReadByOthers | ReadByLocal // programs that handle payments
)

// Defaults for the local runner.
const (
	LocalAddr       = "127.0.0.1:8402"
	LocalLedgerFile = ".local/ledger.db"
	// LocalPayTo is the second account of the well-known development mnemonic.
	// Its private key is published: nothing of value may ever be paid to it.
	LocalPayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
)

// defaultOfNetwork is the value of the field Otherwise for the variables about the token.
const defaultOfNetwork = "that of USDC on `NETWORK`, if known"

// knownNetworks returns the names of the networks whose token and nodes are known. If NETWORK is
// one of these networks, the variables for the token and the nodes may be empty.
func knownNetworks() string {
	var names []string
	for _, n := range x402.Networks() {
		names = append(names, n.Name+" (`"+n.USDC.Network+"`)")
	}
	return strings.Join(names, " and ")
}

// Settings returns all variables that the service reads.
func Settings() []Setting { return settings(new(values)) }

// settings returns all variables. When a variable is parsed, its value is stored in v.
func settings(v *values) []Setting {
	deployed := deployedSettings(v)
	for i := range deployed {
		deployed[i].Template = true
	}
	return append(deployed, otherSettings(v)...)
}

// parseInto returns a parser that stores the result of parse in *place.
func parseInto[T any](place *T, parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		v, err := parse(text)
		if err != nil {
			return err
		}
		*place = v
		return nil
	}
}

// keepText returns a parser that accepts any text and stores it in *place.
func keepText(place *string) func(string) error {
	return parseInto(place, func(text string) (string, error) { return text, nil })
}
