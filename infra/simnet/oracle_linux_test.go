package simnet

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// unlike are hosts of which openssl shows no certificate, and why the service is right to.
// Names are those of the tables.
func unlike() map[string]string {
	return map[string]string{
		"oddversion": "openssl shows the certificate of a handshake that went on; the service that of one that did not",
		"brainpool":  "openssl offers these curves when it is told to",
		"old":        "openssl makes one offer, with TLS 1.3 in it",
	}
}

// agreesWithOpenSSL compares what ssl-check has said of each certificate with what openssl
// says of the same host. A difference that is not listed fails, and so does one that is
// listed and gone.
func agreesWithOpenSSL(t *testing.T, n *internet, seen *observed) {
	testbed.Find(t, "openssl", "openssl")
	for name, ours := range seen.leaves {
		h := n.hosts[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs := openssl(t, h.addrs[len(h.addrs)-1], name)
			why := unlike()[strings.TrimSuffix(name, ".example.com")]
			if (theirs == nil) != (why != "") {
				t.Errorf("openssl shows a certificate: %t; that it does not is expected: %q", theirs != nil, why)
			}
			for path, value := range theirs {
				if got := strings.Trim(fmt.Sprint(ours[path]), "[]"); got != value {
					t.Errorf("%s is %q, and openssl says %q", path, got, value)
				}
			}
		})
	}
	if len(seen.leaves) < 15 {
		t.Errorf("only %d hosts are compared", len(seen.leaves))
	}
}

// openssl is what openssl says of the certificate of a host, by our names for it; nil
// where it shows none.
func openssl(t *testing.T, addr, name string) map[string]string {
	// Every cipher suite, of which many are long out of use.
	chain := run(t, "", "s_client", "-connect", netip.AddrPortFrom(netip.MustParseAddr(addr), 443).String(),
		"-servername", name, "-cipher", "ALL:COMPLEMENTOFALL:@SECLEVEL=0", "-min_protocol", "TLSv1")
	if !strings.Contains(chain, "BEGIN CERTIFICATE") {
		return nil
	}
	says := map[string]string{"sans": ""}
	printed := run(t, chain, "x509", "-noout", "-serial", "-subject", "-issuer", "-dates", "-dateopt", "iso_8601",
		"-fingerprint", "-sha256", "-nameopt", "RFC2253,-esc_msb,utf8")
	for line := range strings.Lines(printed) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch strings.ToLower(key) {
		case "serial":
			says["serial"] = strings.ToLower(value)
		case "sha256 fingerprint":
			says["fingerprint_sha256"] = strings.ToLower(strings.ReplaceAll(value, ":", ""))
		case "notbefore":
			says["not_before"] = strings.Replace(value, " ", "T", 1)
		case "notafter":
			says["not_after"] = strings.Replace(value, " ", "T", 1)
		case "subject", "issuer":
			says[key] = value
		default:
			t.Errorf("openssl x509 prints %q", line)
		}
	}
	names := run(t, chain, "x509", "-noout", "-ext", "subjectAltName")
	for _, m := range regexp.MustCompile(`DNS:([^,\n]*)`).FindAllStringSubmatch(names, -1) {
		says["sans"] = strings.TrimSpace(says["sans"] + " " + m[1])
	}
	return says
}

// run is what an openssl command prints.
func run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "openssl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, _ := cmd.Output() // it fails where there is no certificate
	return string(out)
}
