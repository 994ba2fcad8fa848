package simnet

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// everySuite has a program take what is long out of use.
const everySuite = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"

// opensslOracle shows the certificate of every host that shows one.
func opensslOracle(n *internet) oracle {
	return oracle{"openssl", n.comparedNames("openssl"), func(t *testing.T, name string, a *agreement) {
		got, code := a.lookUp(t, catalog.SSLCheck(), name, "")
		addrs := n.hosts[name].addrs
		ended := func(status int) bool { return status < 0 }
		chain, _ := patiently(code, ended, func(seconds int) (string, int) {
			return run(t, time.Duration(seconds)*time.Second, nil, "", "openssl", "s_client", "-connect", at443(addrs[len(addrs)-1]), "-servername", name,
				"-cipher", everySuite, "-min_protocol", "TLSv1")
		})
		shown := strings.Contains(chain, "BEGIN CERTIFICATE")
		a.compare(name, "certificate", strconv.FormatBool(code == ""), strconv.FormatBool(shown))
		if code != "" || !shown {
			return
		}
		says := openssl(t, chain)
		for path, field := range map[string]string{
			"serial": "serial", "subject": "subject", "issuer": "issuer", "not_before": "notbefore", "not_after": "notafter",
			"fingerprint_sha256": "sha256 fingerprint", "sans": "sans",
		} {
			a.compare(name, field, strings.Join(listed(got[path]), " "), says[field])
		}
	}}
}

func openssl(t *testing.T, chain string) map[string]string {
	printed, _ := run(t, patience, nil, chain, "openssl", "x509", "-noout", "-serial", "-subject", "-issuer", "-dates", "-dateopt", "iso_8601",
		"-fingerprint", "-sha256", "-nameopt", "RFC2253,-esc_msb,utf8")
	says := map[string]string{}
	for line := range strings.Lines(printed) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key = strings.ToLower(key); key {
		case "serial", "sha256 fingerprint":
			value = strings.ToLower(strings.ReplaceAll(value, ":", ""))
		case "notbefore", "notafter":
			value = strings.Replace(value, " ", "T", 1)
		}
		says[key] = value
	}
	names, _ := run(t, patience, nil, chain, "openssl", "x509", "-noout", "-ext", "subjectAltName")
	for _, m := range regexp.MustCompile(`DNS:([^,\n]*)`).FindAllStringSubmatch(names, -1) {
		says["sans"] = strings.TrimSpace(says["sans"] + " " + m[1])
	}
	return says
}

// curlOracle asks with HEAD, and shows the status and the headers, or how that failed.
func curlOracle(n *internet) oracle {
	return oracle{"curl", n.comparedNames("curl"), func(t *testing.T, name string, a *agreement) {
		got, code := a.lookUp(t, catalog.Headers(), name, "")
		peer := n.hosts[name].addrs[0]
		if code == "" {
			peer = fmt.Sprint(got["peer_ip"])
		}
		late := func(status int) bool { return status == 28 }
		printed, status := patiently(code, late, func(seconds int) (string, int) {
			return run(t, patience, nil, "", "curl", "-sSkI", "--max-time", strconv.Itoa(seconds), "--http1.1", "--tlsv1.0", "--ciphers", everySuite,
				"--connect-to", "::"+at443(peer), "https://"+name+"/")
		})
		a.compare(name, "outcome", code, curlFailure(status))
		if code != "" || status != 0 {
			return
		}
		// curl prints interim answers as well.
		printed = strings.TrimSuffix(strings.ReplaceAll(printed, "\r\n", "\n"), "\n\n")
		printed = printed[strings.LastIndex(printed, "\n\n")+1:]
		first, rest, _ := strings.Cut(strings.TrimLeft(printed, "\n"), "\n")
		a.compare(name, "status", fmt.Sprint(got["status"]), strings.Fields(first)[1][:3])
		theirs := http.Header{}
		for line := range strings.Lines(rest) {
			field, value, _ := strings.Cut(line, ":")
			theirs.Add(field, strings.Trim(value, " \t\n"))
		}
		for key, value := range got["headers"].(map[string]any) {
			var other any // null, which is not empty
			if values := theirs.Values(key); len(values) > 0 {
				other = values[0]
			}
			a.compare(name, key, fmt.Sprintf("%#v", value), fmt.Sprintf("%#v", other))
		}
	}}
}

// curlFailure is what an exit status of curl is for the service.
func curlFailure(status int) string {
	switch status {
	case 0:
		return ""
	case 7:
		return string(lookup.ConnectFailed)
	case 28:
		return string(lookup.HeadersTimeout)
	case 35, 60:
		return string(lookup.HandshakeFailed)
	case 1, 8, 43, 52, 56, 61:
		return string(lookup.HTTPFailed)
	}
	return "curl ended with " + strconv.Itoa(status)
}

// rdapOracle is the openrdap command, which is given the bootstrap file and the
// name, and nothing else.
func rdapOracle(t *testing.T, n *internet) oracle {
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
		got, code := a.lookUp(t, catalog.Whois(), name, "")
		failed := func(status int) bool { return status != 0 }
		printed, status := patiently(code, failed, func(seconds int) (string, int) {
			return run(t, patience, env, "", builtIn("rdap"), "--cache-dir=", "--bs-url="+base, "-T", strconv.Itoa(seconds), "-t", "domain", "--text", "-w", name)
		})
		says := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^([A-Z].*?): (.*)$`).FindAllStringSubmatch(printed, -1) {
			says[m[1]] = strings.TrimPrefix(says[m[1]]+", "+m[2], ", ")
		}
		answered := status == 0 && len(says) > 0 // it prints nothing of what is no domain
		a.compare(name, "answer", strconv.FormatBool(code == ""), strconv.FormatBool(answered))
		if code != "" || !answered {
			return
		}
		says["Delegation Signed"] = strconv.FormatBool(strings.Contains(printed, "Delegation Signed: true\n"))
		for path, theirs := range map[string]string{
			"handle": "Handle", "status": "Domain Status", "registrar.name": "Registrar", "registrar.iana_id": "Registrar IANA ID",
			"created_at": "Creation Date", "updated_at": "Updated Date", "expires_at": "Expiration Date", "nameservers": "Name Server",
			"dnssec": "Delegation Signed",
		} {
			a.compare(name, path, strings.Join(listed(got[path]), ", "), utc(says[theirs]))
		}
	}}
}

// utc is a date of RFC 3339 as the service writes it, and any other as it is.
func utc(date string) string {
	if at, err := time.Parse(time.RFC3339, date); err == nil {
		return at.UTC().Format("2006-01-02T15:04:05Z")
	}
	return date
}
