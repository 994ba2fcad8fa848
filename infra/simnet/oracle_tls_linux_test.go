package simnet

import (
	"bufio"
	"encoding/json"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
)

// everySuite has a program take what is long out of use.
const everySuite = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"

// opensslOracle shows the certificate of every host that shows one.
func opensslOracle(n *internet) oracle {
	return oracle{"openssl", n.comparedNames("openssl"), func(t *testing.T, name string, a *agreement) {
		var got ssl.Result
		code := a.lookUp(t, catalog.SSLCheck(), name, "", &got)
		addrs := n.hosts[name].addrs
		ended := func(status int) bool { return status < 0 }
		chain := patiently(code, ended, func(seconds string) ran {
			return run(t, must(time.ParseDuration(seconds+"s")), nil, "", "openssl", "s_client", "-connect", at443(addrs[len(addrs)-1]), "-servername", name,
				"-cipher", everySuite, "-min_protocol", "TLSv1")
		}).out
		shown := strings.Contains(chain, "BEGIN CERTIFICATE")
		a.compare(short(name), "certificate", strconv.FormatBool(code == ""), strconv.FormatBool(shown))
		if code != "" || !shown {
			return
		}
		says := openssl(t, chain)
		for field, value := range map[string]string{
			"serial": got.Serial, "subject": got.Subject, "issuer": got.Issuer, "not_before": got.NotBefore, "not_after": got.NotAfter,
			"fingerprint_sha256": got.FingerprintSHA256, "sans": strings.Join(got.SANs, " "),
		} {
			a.compare(short(name), field, value, says[field])
		}
	}}
}

// openssl reads the first certificate of s_client's output, into our forms.
func openssl(t *testing.T, chain string) map[string]string {
	t.Helper()
	printed := run(t, patience, nil, chain, "openssl", "x509", "-noout", "-serial", "-subject", "-issuer", "-dates", "-dateopt", "iso_8601",
		"-fingerprint", "-sha256", "-nameopt", "RFC2253,-esc_msb,utf8").out
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
	names := run(t, patience, nil, chain, "openssl", "x509", "-noout", "-ext", "subjectAltName").out
	var sans []string
	for _, m := range regexp.MustCompile(`DNS:([^,\n]*)`).FindAllStringSubmatch(names, -1) {
		sans = append(sans, m[1])
	}
	says["sans"] = strings.Join(sans, " ")
	return says
}

// curlOracle asks with HEAD, and shows the status and the headers, or how that
// failed.
func curlOracle(n *internet) oracle {
	return oracle{"curl", n.comparedNames("curl"), func(t *testing.T, name string, a *agreement) {
		got := struct { // the result of spec §2.4
			Status  int
			PeerIP  string `json:"peer_ip"`
			Headers map[string]*string
		}{PeerIP: n.hosts[name].addrs[0]}
		code := a.lookUp(t, catalog.Headers(), name, "", &got)
		late := func(status int) bool { return status == 28 }
		fetched := patiently(code, late, func(seconds string) ran {
			return run(t, patience, nil, "", "curl", "-sSkI", "--max-time", seconds, "--http1.1", "--tlsv1.0", "--ciphers", everySuite,
				"--connect-to", "::"+at443(got.PeerIP), "https://"+name+"/")
		})
		a.compare(short(name), "outcome", code, curlFailure(fetched.status))
		if code != "" || fetched.status != 0 {
			return
		}
		// curl prints interim answers as well.
		printed := strings.TrimSuffix(strings.ReplaceAll(fetched.out, "\r\n", "\n"), "\n\n")
		printed = printed[strings.LastIndex(printed, "\n\n")+1:]
		first, rest, _ := strings.Cut(strings.TrimLeft(printed, "\n"), "\n")
		a.compare(short(name), "status", strconv.Itoa(got.Status), strings.Fields(first)[1])
		theirs, err := textproto.NewReader(bufio.NewReader(strings.NewReader(strings.TrimRight(rest, "\n") + "\n\n"))).ReadMIMEHeader()
		if err != nil {
			t.Fatalf("curl printed %q: %v", rest, err)
		}
		for key, value := range got.Headers {
			var other *string
			if values := theirs.Values(key); len(values) > 0 {
				other = &values[0]
			}
			a.compare(short(name), key, text(value), text(other))
		}
	}}
}

// text is a value as JSON, which tells null from empty.
func text(v *string) string { return string(must(json.Marshal(v))) }

// curlFailure is what an exit status of curl is for the service.
func curlFailure(status int) string {
	switch status {
	case 0:
		return ""
	case 7:
		return string(fault.ConnectFailed)
	case 28:
		return string(fault.HeadersTimeout)
	case 35, 60:
		return string(fault.HandshakeFailed)
	case 1, 8, 43, 52, 56, 61:
		return string(fault.HTTPFailed)
	}
	return "curl ended with " + strconv.Itoa(status)
}
