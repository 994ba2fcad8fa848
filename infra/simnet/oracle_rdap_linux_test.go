package simnet

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// rdapOracle is the openrdap command, which is given the bootstrap file and the
// name, and nothing else.
func rdapOracle(t *testing.T, n *internet) oracle {
	t.Helper()
	const mapped = "abcdefghijklmnopqrstuvwxyz0123456789-." // the command maps no others
	var names []string
	for _, row := range whoisRows() {
		if strings.Trim(row.domain, mapped) == "" && strings.Count(row.domain, ".") == 1 {
			names = append(names, row.domain)
		}
	}
	base := strings.TrimSuffix(n.bootstrap, "/dns.json")
	env := []string{"SSL_CERT_FILE=" + n.ca.File, "HOME=" + t.TempDir()}
	return oracle{builtIn("rdap"), names, func(t *testing.T, name string, a *agreement) {
		var got whois.Result
		code := a.lookUp(t, catalog.Whois(), name, "", &got)
		failed := func(status int) bool { return status != 0 }
		printed := patiently(code, failed, func(seconds string) ran {
			return run(t, patience, env, "", builtIn("rdap"), "--cache-dir=", "--bs-url="+base, "-T", seconds, "-t", "domain", "--text", "-w", name)
		})
		ours, theirs := "an answer", "an answer"
		if code != "" {
			ours = "none"
		}
		says := whoisFields(printed.out)
		if printed.status != 0 || len(says) == 0 { // it prints nothing of what is no domain
			theirs = "none"
		}
		a.compare(name, "answer", ours, theirs)
		if ours == "none" || theirs == "none" {
			return
		}
		registrar, id := "", ""
		if got.Registrar != nil {
			registrar, id = got.Registrar.Name, got.Registrar.IANAID
		}
		first := func(key string) string { return append(says[key], "")[0] }
		list := func(key string) string { return strings.Join(says[key], ", ") }
		signed := strings.Contains(printed.out, "Delegation Signed: true\n")
		for _, c := range []struct{ field, ours, theirs string }{
			{"handle", orEmpty(got.Handle), first("Handle")},
			{"status", strings.Join(got.Status, ", "), list("Domain Status")},
			{"registrar", registrar, first("Registrar")},
			{"iana_id", id, first("Registrar IANA ID")},
			{"created_at", orEmpty(got.CreatedAt), utc(first("Creation Date"))},
			{"updated_at", orEmpty(got.UpdatedAt), utc(first("Updated Date"))},
			{"expires_at", orEmpty(got.ExpiresAt), utc(first("Expiration Date"))},
			{"nameservers", strings.Join(got.Nameservers, ", "), list("Name Server")},
			{"dnssec", strconv.FormatBool(got.DNSSEC), strconv.FormatBool(signed)},
		} {
			a.compare(name, c.field, c.ours, c.theirs)
		}
	}}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// whoisFields are the lines of the command's WHOIS form.
func whoisFields(printed string) map[string][]string {
	says := map[string][]string{}
	for line := range strings.Lines(printed) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok && line[0] >= 'A' && line[0] <= 'Z' {
			says[key] = append(says[key], value)
		}
	}
	return says
}

// utc is a date of RFC 3339 as the service writes it, and any other as it is.
func utc(date string) string {
	if at, err := time.Parse(time.RFC3339, date); err == nil {
		return at.UTC().Format("2006-01-02T15:04:05Z")
	}
	return date
}
