package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// value is the JSON value of a member of the secret.
type value = json.RawMessage

// member is a part of the secret that is always changed as a whole. A part may consist of
// several JSON members.
type member struct {
	question string   // the question to a person
	names    []string // the JSON members of this part
	// replacedNames lists the JSON members that are removed when this part is set.
	replacedNames []string
	parse         func(text string) (map[string]value, error)
}

// members returns the parts of the secret by their names. The variables SET and UNSET of "make
// secret" take one of these names.
func members() map[string]member {
	key := []string{boot.SecretKeyID, boot.SecretKey}
	token := []string{boot.SecretToken}
	return map[string]member{
		"key":                 {"CDP key: its id, a space, and its secret", key, token, parseKey},
		boot.SecretToken:      {"Bearer token of the facilitator", token, key, textParser(boot.SecretToken)},
		boot.SecretNodes:      {"URLs of nodes, separated by commas", []string{boot.SecretNodes}, nil, parseNodes},
		boot.SecretReceiptKey: {"RECEIPT_KEY, as make receipt-key prints it", []string{boot.SecretReceiptKey}, nil, parseReceiptKey},
	}
}

// memberNames returns the names of the parts.
func memberNames() string { return strings.Join(slices.Sorted(maps.Keys(members())), ", ") }

var errNoValue = errors.New("the value is empty. To remove a part, use UNSET")

func jsonText(s string) value {
	doc, _ := json.Marshal(s) // this never fails for a string
	return doc
}

// textParser returns a parser for a part with one JSON member, whose value is a text. name is
// the name of that member. The parser refuses an empty text.
func textParser(name string) func(string) (map[string]value, error) {
	return func(s string) (map[string]value, error) {
		if s == "" {
			return nil, errNoValue
		}
		return map[string]value{name: jsonText(s)}, nil
	}
}

// parseReceiptKey parses a receipt key. The text is either the key alone, or has a line with
// "RECEIPT_KEY=" before the key.
func parseReceiptKey(s string) (map[string]value, error) {
	for line := range strings.Lines(s) { // the output of "make receipt-key" also has a line with the public keys
		if key, named := strings.CutPrefix(strings.TrimSpace(line), "RECEIPT_KEY="); named {
			s = key
		}
	}
	return textParser(boot.SecretReceiptKey)(s)
}

// parseNodes parses a list of node URLs, separated by commas or white space.
func parseNodes(s string) (map[string]value, error) {
	urls := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	if len(urls) == 0 {
		return nil, errNoValue
	}
	doc, err := json.Marshal(urls)
	return map[string]value{boot.SecretNodes: doc}, err
}

// parseKey parses the id and the secret of a CDP key. The text is either the JSON file from
// CDP, or the id and the secret with a line break or a space between them.
func parseKey(s string) (map[string]value, error) {
	id, secret, _ := strings.Cut(s, "\n")
	if !strings.Contains(s, "\n") {
		id, secret, _ = strings.Cut(s, " ")
	}
	if strings.HasPrefix(s, "{") {
		var file struct {
			ID     string `json:"id"`
			Name   string `json:"name"` // an older key file has this member instead of id
			Secret string `json:"privateKey"`
		}
		if json.Unmarshal([]byte(s), &file) != nil { // the error's text would quote the key
			return nil, errors.New("the value begins with { but is not the JSON of a CDP key")
		}
		id = cmp.Or(file.ID, file.Name)
		secret = file.Secret
	}
	id = strings.TrimSpace(id)
	secret = strings.TrimSpace(secret)
	if id == "" || secret == "" {
		return nil, errors.New("give the key's id, a space or line break, and its secret; or the JSON file from CDP, with id and privateKey")
	}
	return map[string]value{boot.SecretKeyID: jsonText(id), boot.SecretKey: jsonText(secret)}, nil
}

// members returns the JSON members of the secret. If the secret does not exist, there are
// none.
func (c storedSecret) members() (map[string]value, error) {
	if !c.exists {
		return map[string]value{}, nil
	}
	const depth = 8
	had, err := untrusted.Split(c.doc, depth)
	if err != nil { // the error's text may quote the secret
		return nil, errors.New("the secret does not hold a JSON object, so no part of it can be changed. Create another secret under another NAME")
	}
	return had, nil
}

// mergePart returns a copy of a document in which one part is changed. The part gets the new
// values, and the members that this part replaces are removed. If values is nil, the part
// itself is removed instead.
func mergePart(had map[string]value, part string, values map[string]value) map[string]value {
	then := maps.Clone(had)
	m := members()[part]
	for _, name := range m.names {
		delete(then, name)
	}
	if values != nil {
		for _, name := range m.replacedNames {
			delete(then, name)
		}
	}
	maps.Copy(then, values)
	return then
}

func document(then map[string]value) []byte {
	doc, _ := json.Marshal(then) // every value is valid JSON
	return doc
}

// change has the name of a changed member, and a line that describes the change.
type change struct{ name, line string }

// differences returns the changes from the first document to the second, sorted by the name of
// the member.
func differences(had, then map[string]value) (all []change) {
	either := maps.Clone(had)
	maps.Copy(either, then)
	for _, name := range slices.Sorted(maps.Keys(either)) {
		before, was := had[name]
		after, is := then[name]
		switch {
		case !was:
			all = append(all, change{name, fmt.Sprintf("+ %s %s", safeName(name), fingerprint(after))})
		case !is:
			all = append(all, change{name, fmt.Sprintf("- %s %s is removed", safeName(name), fingerprint(before))})
		case fingerprint(before) != fingerprint(after):
			all = append(all, change{name, fmt.Sprintf("~ %s %s replaces %s", safeName(name), fingerprint(after), fingerprint(before))})
		}
	}
	return all
}

// unchangedNames returns the names of the unchanged members.
func unchangedNames(then map[string]value, changes []change) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(then)) {
		if !slices.ContainsFunc(changes, func(c change) bool { return c.name == name }) {
			names = append(names, safeName(name))
		}
	}
	return names
}

// safeName returns the name of a member in a form that is safe for a terminal.
func safeName(name string) string { return untrusted.Text(name) }

// fingerprint returns a short hash, with which a person can compare two values without seeing
// them: the first eight hex digits of a SHA-256. If the value is a JSON string, the hash is of
// its text. Otherwise the hash is of the JSON.
func fingerprint(v value) string {
	plain := []byte(v)
	var s string
	if json.Unmarshal(v, &s) == nil {
		plain = []byte(s)
	}
	sum := sha256.Sum256(plain)
	return fmt.Sprintf("(sha256 %x…)", sum[:4])
}

// printMembers prints the name and the fingerprint of each member. It adds the public key of
// the receipt key, the number of nodes, and which members no function reads.
func printMembers(w io.Writer, all map[string]value, doc []byte) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		more := ""
		switch {
		case !slices.Contains(boot.SecretMembers(), name):
			more = "no function reads it"
		case name == boot.SecretReceiptKey:
			if public := boot.SecretReceiptPublicKey(doc); public != "" {
				more = "ReceiptPublicKeys must have " + public
			}
		case name == boot.SecretNodes:
			var urls []string
			if json.Unmarshal(all[name], &urls) == nil {
				more = fmt.Sprintf("%d of 5 at most", len(urls))
			}
		}
		line := fmt.Sprintf("%-12s %s  %s", safeName(name), fingerprint(all[name]), more)
		fmt.Fprintln(w, strings.TrimSpace(line))
	}
}
