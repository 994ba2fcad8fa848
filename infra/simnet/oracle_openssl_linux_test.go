package simnet

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
)

// agreesWithOpenSSL compares every certificate that a host shows.
func agreesWithOpenSSL(t *testing.T, n *internet, r *runner, a *agreement) {
	sideBySide(t, serving(nameHosts(), tlsHosts(), certificateHosts()), func(t *testing.T, name string) {
		host := strings.TrimSuffix(name, ".example.com")
		var got ssl.Result
		code := lookUp(t, r, catalog.SSLCheck(), name, &got)
		address := n.hosts[name].addrs[len(n.hosts[name].addrs)-1]
		if strings.Contains(address, ":") {
			address = "[" + address + "]"
		}
		connect := func(limit time.Duration) (string, int) {
			return run(t, limit, nil, "", "openssl", "s_client", "-connect", address+":443", "-servername", name,
				"-cipher", "ALL:COMPLEMENTOFALL:@SECLEVEL=0", "-min_protocol", "TLSv1")
		}
		chain, status := connect(6 * time.Second)
		if status < 0 && !strings.HasSuffix(code, "_timeout") { // this machine is slow, not the host
			chain, _ = connect(patience)
		}
		shown := strings.Contains(chain, "BEGIN CERTIFICATE")
		a.compare(host, "certificate", strconv.FormatBool(code == ""), strconv.FormatBool(shown))
		if code != "" || !shown {
			return
		}
		says := openssl(t, chain)
		for field, value := range map[string]string{
			"serial": got.Serial, "subject": got.Subject, "issuer": got.Issuer, "not_before": got.NotBefore, "not_after": got.NotAfter,
			"fingerprint_sha256": got.FingerprintSHA256, "sans": strings.Join(got.SANs, " "),
		} {
			a.compare(host, field, value, says[field])
		}
	})
}

// openssl reads the first certificate of s_client's output, into our forms.
func openssl(t *testing.T, chain string) map[string]string {
	t.Helper()
	printed, _ := run(t, patience, nil, chain, "openssl", "x509", "-noout", "-serial", "-subject", "-issuer", "-dates", "-dateopt", "iso_8601",
		"-fingerprint", "-sha256", "-nameopt", "RFC2253,-esc_msb,utf8")
	says := map[string]string{}
	for line := range strings.Lines(printed) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key = strings.ToLower(key); key {
		case "serial":
			says[key] = strings.ToLower(value)
		case "notbefore", "notafter":
			says["not_"+key[3:]] = strings.Replace(value, " ", "T", 1)
		case "sha256 fingerprint":
			says["fingerprint_sha256"] = strings.ToLower(strings.ReplaceAll(value, ":", ""))
		default:
			says[key] = value
		}
	}
	names, _ := run(t, patience, nil, chain, "openssl", "x509", "-noout", "-ext", "subjectAltName")
	var sans []string
	for _, m := range regexp.MustCompile(`DNS:([^,\n]*)`).FindAllStringSubmatch(names, -1) {
		sans = append(sans, m[1])
	}
	says["sans"] = strings.Join(sans, " ")
	return says
}
