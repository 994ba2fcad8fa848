package simnet

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// certificateRows are certificates that libraries refuse, and connections that
// show one and fail: the leaf is the product.
func certificateRows() []row {
	ssl := func(name string, w want) row { return row{op: "ssl-check", domain: name + ".example.com", want: w} }
	failed := func(name, message string) row {
		return row{op: "ssl-check", domain: name + ".example.com", code: fault.HandshakeFailed, want: want{"error.message": starts(message)}}
	}
	const unread, notTLS, early = "The host sent a certificate that cannot be read.", "The host does not speak TLS on port 443.", "The TLS handshake failed before the host sent a certificate."
	rows := []row{
		ssl("negative", want{"serial": "-81"}), ssl("zeroserial", want{"serial": "00"}), ssl("padserial", want{"serial": "01"}),
		ssl("longserial", want{"serial": strings.Repeat("ab", 30)}),
		ssl("version1", want{"hostname_match": false, "sans": listing{}}),
		ssl("mixedalgo", want{"signature_algorithm": "sha256WithRSAEncryption"}), ssl("unknownalgo", want{"signature_algorithm": "1.2.3.4.5"}),
		ssl("md5algo", want{"signature_algorithm": "md5WithRSAEncryption"}), ssl("sha1algo", want{"signature_algorithm": "sha1WithRSAEncryption"}),
		ssl("fraction", want{"not_before": "2026-01-01T00:00:00Z", "not_after": "2036-01-01T00:00:00Z"}),
		ssl("noseconds", want{"not_before": "2026-01-01T00:00:00Z"}),
		ssl("offset", want{"not_before": "2025-12-31T23:00:00Z", "not_after": "2036-01-01T01:30:00Z"}),
		ssl("farfuture", want{"not_after": "9999-12-31T23:59:59Z", "expired": false}),
		ssl("longago", want{"not_before": "1950-01-01T00:00:00Z", "not_after": "1999-12-31T23:59:59Z", "expired": true}),
		ssl("nosubject", want{"subject": ""}), ssl("bmpname", want{"subject": "CN=Ω"}), ssl("t61name", want{"subject": "CN=café"}),
		ssl("universal", want{"subject": "CN=Ω"}), ssl("printable", want{"subject": "CN=a_b@c"}), ssl("badutf8", want{"subject": "CN=#0c0261ff"}),
		ssl("nulname", want{"subject": `CN=a\00b\0Ac`}), ssl("escapes", want{"subject": `CN=\ #a\,b\+c\"d\\e\<f\>\;g\ `}),
		ssl("fullname", want{"subject": "UID=u,emailAddress=a@example.com,organizationIdentifier=VATDE-1,DC=example,C=DE"}),
		ssl("multirdn", want{"subject": "CN=a+OU=b"}),
		ssl("emptysan", want{"hostname_match": false, "sans": listing{}}), ssl("latinsan", want{"hostname_match": true, "sans": count(2)}),
		ssl("oddsans", want{"hostname_match": true, "sans": listing{"a\x00b", "https://x/", "*.*.x", "oddsans.example.com.", "ODDSANS.example.com"}}),
		ssl("mixedsan", want{"hostname_match": true, "sans": listing{"mixedsan.example.com", "*.mixedsan.example.com"}}),
		ssl("deepwild", want{"hostname_match": false, "sans": count(3)}),
		ssl("thousand", want{"sans": count(1000)}), ssl("overbound", want{"sans": count(5000)}),
		ssl("junkchain11", want{"tls_version": "tlsv1.1"}), ssl("junkchain12", want{"tls_version": "tlsv1.2", "cipher": starts("tls_ecdhe_")}),
		ssl("junkchain", want{"tls_version": "tlsv1.3", "cipher": starts("tls_"), "subject": "CN=junkchain.example.com"}),
		ssl("reversed", want{"subject": "CN=Simnet CA,O=Simnet,C=US", "hostname_match": false}),
		ssl("selfsigned", want{"subject": "", "issuer": "", "serial": "07", "hostname_match": true}),
		ssl("rsa9216", want{"tls_version": "tlsv1.3"}), ssl("rsa9216old", want{"tls_version": "tlsv1.2"}),
		ssl("rsakex", want{"cipher": "tls_rsa_with_aes_128_cbc_sha"}), ssl("tripledes", want{"cipher": "tls_rsa_with_3des_ede_cbc_sha"}),
		ssl("rc4", want{"cipher": "tls_rsa_with_rc4_128_sha"}), ssl("chacha", want{"cipher": "tls_ecdhe_rsa_with_chacha20_poly1305_sha256"}),
		ssl("p384only", want{"tls_version": "tlsv1.3"}), ssl("wrongkey12", want{"tls_version": "tlsv1.2"}),
		ssl("hangs12", want{"tls_version": "tlsv1.2"}), ssl("resets12", want{"tls_version": "tlsv1.2"}), ssl("closes12", want{"tls_version": "tlsv1.2"}),
		ssl("sixfails", want{"peer_ip": starts("93.184.")}), ssl("sixsilent", want{"peer_ip": starts("93.184.")}), ssl("sixnx", want{"peer_ip": starts("93.184.")}),
		ssl("fourfails", want{"peer_ip": "2606:2800:220:1::9"}), ssl("fourfirst", want{"peer_ip": "93.184.2.30"}),
		failed("junkleaf", unread), failed("shapeless", unread),
		failed("sshport", notTLS), failed("longrecord", notTLS),
		failed("nocerts", early), failed("hangupatonce", early), failed("floodcerts", unread), failed("huge", early),
		failed("unknownsni", "The host refused the TLS handshake with alert 112"), failed("mlkemonly", "The host refused the TLS handshake with alert 40"),
		{op: "ssl-check", domain: "halfhello.example.com", code: fault.SSLTimeout},
		{op: "ssl-check", domain: "dripstls.example.com", code: fault.SSLTimeout},
		{op: "ssl-check", domain: "manylast.example.com", code: fault.BlockedAddress},
		{op: "ssl-check", domain: "refused.example.com", code: fault.SSLTimeout},
		{op: "ssl-check", domain: "refers.example.com", code: fault.SSLTimeout},
		{op: "ssl-check", domain: "bareservfail.example.com", code: fault.SSLTimeout},
		{op: "ssl-check", domain: "yxdomain.example.com", code: fault.ConnectFailed, want: want{"error.message": starts("The domain has no address to connect to: the resolvers answer YXDOMAIN")}},
		{op: "ssl-check", domain: "chain20.example.com", code: fault.ConnectFailed},
		{op: "ssl-check", domain: "cnameloop.example.com", code: fault.ConnectFailed},
	}
	for _, name := range []string{"version4", "trailing", "twicesame", "ipsan", "urisan", "padchain", "longchain", "rsa512", "rsa1024", "explicit", "unknownkey",
		"wrongkey", "p384", "p521", "p224", "ed25519", "rsa"} {
		matches := name != "twicesame" // which has no names
		rows = append(rows, ssl(name, want{"hostname_match": matches, "fingerprint_sha256": something, "expired": false}))
	}
	return rows
}
