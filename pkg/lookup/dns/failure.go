package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Diagnose is like Probe, with a result for a person. It returns no lines if lookups work.
// Otherwise it returns one line for each resolver that was queried and, if it can tell the
// likely reason, one more line with that reason.
func (c *Client) Diagnose(ctx context.Context) (lines []string) {
	err := c.Probe(ctx)
	if err == nil {
		return nil
	}
	all, ok := errors.AsType[*failures](err)
	if !ok {
		return []string{err.Error()}
	}
	answers := 0
	for _, one := range all.list {
		lines = append(lines, one.text)
		if one.hasReply {
			answers++
		}
	}
	switch {
	case answers > 0: // a reply came, so the network does not block DNS
		lines = append(lines, "An answer did come: something on this network changes DNS answers, or the resolver does not know com.")
	case fault.From(err).Code == lookup.DNSTimeout:
		lines = append(lines, "Many networks block UDP port 53 to the outside.")
	}
	return lines
}

// failure says why a resolver gave no useful answer. Its text names the resolver.
type failure struct {
	hasReply bool // a reply came, but says nothing about the name
	text     string
	cause    error // the error of the connection; nil if a reply came
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() error { return f.cause }

// failures holds the reasons why a question got no answer. It is the cause in the error of a
// lookup.
type failures struct {
	list   []*failure
	ctxErr error // the error of the context, or nil
}

func (f *failures) Error() string {
	var texts []string
	for _, one := range f.list {
		texts = append(texts, one.text)
	}
	if f.ctxErr != nil {
		texts = append(texts, f.ctxErr.Error())
	}
	return strings.Join(texts, "; ")
}

func (f *failures) Unwrap() []error {
	var all []error
	for _, one := range f.list {
		all = append(all, one)
	}
	if f.ctxErr != nil {
		all = append(all, f.ctxErr)
	}
	return all
}

// replyFailure returns the failure of a resolver whose reply says nothing about the name. text
// continues a sentence that begins with the resolver.
func replyFailure(resolver, text string) *failure {
	return &failure{hasReply: true, text: fmt.Sprintf("resolver %s %s", resolver, text)}
}

// noReplyFailure returns the failure of a resolver that sent no reply. If timedOut is true,
// the time ran out; otherwise the resolver could not be reached.
func noReplyFailure(resolver netip.AddrPort, timedOut bool, cause error) *failure {
	text := "could not be asked"
	if timedOut {
		text = "did not answer in time"
	}
	if why := joinReasons(cause); why != "" {
		text += ": " + why
	}
	return &failure{text: fmt.Sprintf("resolver %s %s", resolver, text), cause: cause}
}

// joinReasons returns the joined errors in err as one line. It leaves out context.Canceled and
// context.DeadlineExceeded.
func joinReasons(err error) string {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line != context.DeadlineExceeded.Error() && line != context.Canceled.Error() {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// describe returns what a reply says, in words for a person who knows little of DNS.
func (r *reply) describe() string {
	name := cmp.Or(miekg.RcodeToString[r.msg.Rcode], fmt.Sprintf("RCODE %d", r.msg.Rcode))
	switch {
	case len(r.msg.Question) == 0:
		return "answered " + name + " and left out the question"
	case r.msg.Rcode == miekg.RcodeNameError:
		return "answered " + name + " (no such name)"
	case r.msg.Rcode == miekg.RcodeSuccess && r.outcome == uselessReply:
		return "answered " + name + ", but only named other servers to ask"
	}
	return "answered " + name
}
