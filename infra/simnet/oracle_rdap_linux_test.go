package simnet

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// agreesWithRDAP compares every answer of a registry. The openrdap command is
// given the bootstrap file and the name, and nothing else.
func agreesWithRDAP(t *testing.T, n *internet, r *runner, a *agreement) {
	var names []string
	for _, row := range slices.Concat(whoisRows(), registryRows(), quirkRows()) {
		if isPlain(row.domain) && strings.Count(row.domain, ".") == 1 {
			names = append(names, row.domain)
		}
	}
	base := strings.TrimSuffix(n.bootstrap, "/dns.json")
	env := []string{"SSL_CERT_FILE=" + n.ca.File, "HOME=" + t.TempDir()}
	sideBySide(t, names, func(t *testing.T, name string) {
		var got whois.Result
		code := lookUp(t, r, catalog.Whois(), name, &got)
		ask := func(seconds string) (string, int) {
			return run(t, patience, env, "", builtRDAP(), "--cache-dir=", "--bs-url="+base, "-T", seconds, "-t", "domain", "--text", "-w", name)
		}
		printed, status := ask("6")
		if status != 0 && code != string(fault.WhoisTimeout) { // perhaps this machine is slow, and not the registry
			printed, status = ask("40")
		}
		ours, theirs := "an answer", "an answer"
		if code != "" {
			ours = "none"
		}
		says := whoisFields(printed)
		if status != 0 || len(says) == 0 { // it prints nothing of what is no domain
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
		for field, pair := range map[string][2]string{
			"handle": {orEmpty(got.Handle), leading(says["Handle"])}, "status": {strings.Join(got.Status, ", "), strings.Join(says["Domain Status"], ", ")},
			"registrar": {registrar, leading(says["Registrar"])}, "iana_id": {id, leading(says["Registrar IANA ID"])},
			"created_at": {orEmpty(got.CreatedAt), utc(leading(says["Creation Date"]))}, "updated_at": {orEmpty(got.UpdatedAt), utc(leading(says["Updated Date"]))},
			"expires_at": {orEmpty(got.ExpiresAt), utc(leading(says["Expiration Date"]))}, "nameservers": {strings.Join(got.Nameservers, ", "), strings.Join(says["Name Server"], ", ")},
			"dnssec": {map[bool]string{true: "true", false: "false"}[got.DNSSEC], signedIn(printed)},
		} {
			a.compare(name, field, pair[0], pair[1])
		}
	})
}

// isPlain leaves out names that the command does not map.
func isPlain(name string) bool {
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func leading(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
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

// signedIn reads delegationSigned in the command's text form.
func signedIn(printed string) string {
	return map[bool]string{true: "true", false: "false"}[strings.Contains(printed, "Delegation Signed: true\n")]
}
