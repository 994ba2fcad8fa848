package bundle

import "github.com/hostfacts/hostfacts/pkg/lookup"

// HostIntelVerdicts are the rules for the line that says in words what a
// HostIntelResult found. Its children have their own.
func HostIntelVerdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "dns.error.code = nxdomain", Says: "The domain name does not exist", Tone: lookup.Bad},
		{If: "ssl.expired = true", Says: "The certificate expired {ssl.not_after date}, {ssl.not_after distance}", Tone: lookup.Bad},
		{If: "ssl.not_yet_valid = true", Says: "The certificate is not valid before {ssl.not_before date}", Tone: lookup.Bad},
		{If: "ssl.hostname_match = false", Says: "The certificate is not for {domain}", Tone: lookup.Bad},
		{If: "ssl.error.code != null", Says: "No certificate: {ssl.error.message}", Tone: lookup.Bad},
		{If: "dns.error.code != null", Says: "No DNS records: {dns.error.message}", Tone: lookup.Warn},
		{If: "whois.error.code != null", Says: "Certificate until {ssl.not_after date}; no registry data: {whois.error.message}", Tone: lookup.Warn},
		{If: "whois.expires_at != null", Says: "Certificate until {ssl.not_after date}, registered until {whois.expires_at date}", Tone: lookup.Good},
		{Says: "Certificate until {ssl.not_after date}, registered", Tone: lookup.Good},
	}
}

// UptimeVerdicts are the rules for the line that says in words what an UptimeResult
// found. Its children have their own.
func UptimeVerdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "verdict = up", Says: "Up: certificate in date and for {domain}, HTTP {headers.status}", Tone: lookup.Good},
		{If: "dns.error.code != null", Says: "Down: {dns.error.message}", Tone: lookup.Bad},
		{If: "ssl.error.code != null", Says: "Down: {ssl.error.message}", Tone: lookup.Bad},
		{If: "headers.error.code != null", Says: "Down: {headers.error.message}", Tone: lookup.Bad},
		{If: "ssl.expired = true", Says: "Degraded: the certificate expired {ssl.not_after date}, {ssl.not_after distance}", Tone: lookup.Warn},
		{If: "ssl.not_yet_valid = true", Says: "Degraded: the certificate is not valid before {ssl.not_before date}", Tone: lookup.Warn},
		{If: "ssl.hostname_match = false", Says: "Degraded: the certificate is not for {domain}", Tone: lookup.Warn},
		{Says: "Degraded: HTTP {headers.status}", Tone: lookup.Warn},
	}
}
