package ssl

import "github.com/hostfacts/hostfacts/pkg/lookup"

// Verdicts are the rules for the line that says in words what a Result found.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "expired = true", Says: "Expired {not_after date}, {not_after distance}", Tone: lookup.Bad},
		{If: "not_yet_valid = true", Says: "Not valid before {not_before date}, {not_before distance}", Tone: lookup.Bad},
		{If: "hostname_match = false", Says: "The certificate is not for {domain}", Tone: lookup.Bad},
		{Says: "In date, and for {domain}, until {not_after date} ({not_after distance})", Tone: lookup.Good},
	}
}
