package dns

import "github.com/hostfacts/hostfacts/pkg/lookup"

// Verdicts are the rules for the line that says in words what a Result found.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "rcode = SERVFAIL", Says: "The resolvers could not look {domain} up (SERVFAIL)", Tone: lookup.Bad},
		{If: "rcode = YXDOMAIN", Says: "A DNAME leads {domain} to a name that is too long (YXDOMAIN)", Tone: lookup.Bad},
		{If: "rcode = NXDOMAIN", Says: "CNAME: an alias of {records.0.target}, which does not exist", Tone: lookup.Warn},
		{If: "records.length = 0", Says: "No {type} records"},
		{If: "records.length = 1 and records.0.address != null", Says: "{type}: {records.0.address}", Tone: lookup.Good},
		{If: "records.0.address != null", Says: "{type}: {records.length} addresses", Tone: lookup.Good},
		{If: "records.length = 1 and records.0.exchange = .", Says: "MX: the domain accepts no mail"},
		{If: "type = MX", Says: "MX: {records count mail server}", Tone: lookup.Good},
		{If: "type = TXT", Says: "TXT: {records count text record}", Tone: lookup.Good},
		{If: "type = CNAME", Says: "CNAME: an alias of {records.0.target}", Tone: lookup.Good},
		{If: "type = NS", Says: "NS: {records count name server}", Tone: lookup.Good},
		{If: "type = SOA", Says: "SOA: {records.0.mname}, serial {records.0.serial}", Tone: lookup.Good},
	}
}
