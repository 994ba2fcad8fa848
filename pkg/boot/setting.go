package boot

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Setting is a variable of the environment. Every program parses it by the list of all of
// them, and the table of the runbook is printed from that list.
type Setting struct {
	Name string
	// Default is what an empty variable means, where that is a text. Otherwise is what
	// the runbook says it means.
	Default, Otherwise string
	Meaning            string // for the operator
	// Template says that the template sets it, the same for every function, and
	// Secret that it can hold a secret: the template empties that for a function that
	// does not read it.
	Template, Secret bool
	Readers          Readers

	// parse parses a value that is not empty and keeps it. Its error says what is wrong. It
	// is nil where the programs that need the variable look it up themselves.
	parse func(text string) error
}

// Check says what is wrong with a value by itself.
func (s Setting) Check(value string) error {
	text := strings.TrimSpace(value)
	if text == "" || s.parse == nil {
		return nil
	}
	return s.parse(text)
}

// Readers are programs that read a setting.
type Readers uint8

const (
	ReadByDocuments Readers = 1 << iota // the function of the documents
	ReadByReconcile                     // the function that reconciles
	ReadByOthers                        // every other function
	ReadByLocal                         // the local runner and the operator's commands
	readByAWS                           // who needs nothing but AWS
)

const (
	readByEverybody = ReadByDocuments | ReadByReconcile | ReadByOthers | ReadByLocal
	readByPaid      = ReadByReconcile | ReadByOthers | ReadByLocal // who works with money
)

// Defaults of the local runner.
const (
	LocalAddr       = "127.0.0.1:8402"
	LocalLedgerFile = ".local/ledger.db"
	// LocalPayTo is the second account of the well-known development mnemonic.
	// Its key is public: nothing of value may ever be paid to it.
	LocalPayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
)

// ofNetwork is what the variables of the token mean when they are empty.
const ofNetwork = "that of USDC on `NETWORK`, where that is known"

// knownNetworks names the networks of which NETWORK is all that has to be said.
func knownNetworks() string {
	var names []string
	for _, n := range x402.Networks() {
		names = append(names, n.Name+" (`"+n.USDC.Network+"`)")
	}
	return strings.Join(names, " and ")
}

// Settings are all variables that the service reads.
func Settings() []Setting { return settings(new(values)) }

// settings are all variables, each with the place where its value is kept.
func settings(v *values) []Setting {
	deployed := deployedSettings(v)
	for i := range deployed {
		deployed[i].Template = true
	}
	return append(deployed, otherSettings(v)...)
}

// into parses a value with a function and keeps it in a place.
func into[T any](place *T, parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		v, err := parse(text)
		if err != nil {
			return err
		}
		*place = v
		return nil
	}
}

// text keeps any text.
func text(place *string) func(string) error {
	return into(place, func(text string) (string, error) { return text, nil })
}
