package whois

import "github.com/hostfacts/hostfacts/pkg/lookup"

// Verdicts are the rules for the line that says in words what a Result found.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "expires_at != null", Says: "Registered until {expires_at date} ({expires_at distance})"},
		{If: "created_at != null", Says: "Registered since {created_at date}; the registry does not say until when"},
		{Says: "Registered; the registry does not say since or until when"},
	}
}
