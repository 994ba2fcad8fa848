package headers

import "github.com/hostfacts/hostfacts/pkg/lookup"

// Verdicts are the rules for the line that says in words what a Result found.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "status >= 500", Says: "The server fails: HTTP {status}", Tone: lookup.Bad},
		{If: "status >= 400", Says: "The page is refused: HTTP {status}", Tone: lookup.Warn},
		{If: "status >= 300 and headers.location != null", Says: "HTTP {status}, redirects to {headers.location}"},
		{If: "headers.strict-transport-security = null", Says: "HTTP {status}, without Strict-Transport-Security", Tone: lookup.Warn},
		{Says: "HTTP {status}, with Strict-Transport-Security", Tone: lookup.Good},
	}
}
