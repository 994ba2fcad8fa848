package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	miekg "github.com/miekg/dns"
)

// Failure says why one resolver was of no use. Its text names the resolver.
type Failure struct {
	// Answered means that a reply came, and that nothing follows from it. Otherwise none came.
	Answered bool

	text  string
	cause error
}

// Error implements error.
func (f *Failure) Error() string { return f.text }

// Unwrap returns the error of the connection. It is nil if a reply came.
func (f *Failure) Unwrap() error { return f.cause }

// Failures returns why each resolver was of no use, from an error of Lookup or Probe. It
// returns nil if the error is about something else.
func Failures(err error) []*Failure {
	all, ok := errors.AsType[*failures](err)
	if !ok {
		return nil
	}
	return all.of
}

// failures is the cause of a question without an answer.
type failures struct {
	of    []*Failure
	ended error // the error of the context, or nil
}

func (f *failures) Error() string {
	var texts []string
	for _, one := range f.of {
		texts = append(texts, one.text)
	}
	if f.ended != nil {
		texts = append(texts, f.ended.Error())
	}
	return strings.Join(texts, "; ")
}

func (f *failures) Unwrap() []error {
	var all []error
	for _, one := range f.of {
		all = append(all, one)
	}
	if f.ended != nil {
		all = append(all, f.ended)
	}
	return all
}

// answered returns the failure of a resolver whose reply says nothing about the name. The text
// continues a sentence that begins with the resolver.
func answered(resolver, text string) *Failure {
	return &Failure{Answered: true, text: fmt.Sprintf("resolver %s %s", resolver, text)}
}

// unreached returns the failure of a resolver from which no reply came. late means that the
// time was over.
func unreached(resolver netip.AddrPort, late bool, cause error) *Failure {
	text := "could not be asked"
	if late {
		text = "did not answer in time"
	}
	if why := reasons(cause); why != "" {
		text += ": " + why
	}
	return &Failure{text: fmt.Sprintf("resolver %s %s", resolver, text), cause: cause}
}

// reasons returns joined errors in one line. It leaves out that the time was over.
func reasons(err error) string {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line != context.DeadlineExceeded.Error() && line != context.Canceled.Error() {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// says returns what a reply says, in words for a person who knows little of DNS.
func (r *reply) says() string {
	name := cmp.Or(miekg.RcodeToString[r.msg.Rcode], fmt.Sprintf("RCODE %d", r.msg.Rcode))
	switch {
	case len(r.msg.Question) == 0:
		return "answered " + name + " and left out the question"
	case r.msg.Rcode == miekg.RcodeNameError:
		return "answered " + name + " (no such name)"
	case r.msg.Rcode == miekg.RcodeSuccess && r.outcome == useless:
		return "answered " + name + ", but only named other servers to ask"
	}
	return "answered " + name
}
