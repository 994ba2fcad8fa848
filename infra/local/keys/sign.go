package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"golang.org/x/crypto/sha3"
)

// normalise is an origin as a crawler spells it (new URL(…).origin): scheme and
// host in lower case, the port only when it is not 443, no slash. What has more
// than an origin is refused rather than cut off: it may not be what was meant.
func normalise(s string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil {
		return "", errors.New("is not a URL")
	}
	switch {
	case !strings.EqualFold(u.Scheme, "https"):
		return "", errors.New("must start with https://")
	case u.User != nil, u.RawQuery != "", u.ForceQuery, strings.Contains(s, "#"), u.Path != "" && u.Path != "/":
		return "", errors.New("must be scheme and host only, such as https://api.example.com")
	}
	host, err := hostName(u.Hostname())
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(u.Host, ":") {
		return "", errors.New("has a colon without a port")
	}
	if u.Port() == "" {
		return "https://" + host, nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return "", fmt.Errorf("port %s is not one", u.Port())
	}
	if port == 443 {
		return "https://" + host, nil
	}
	return "https://" + net.JoinHostPort(host, strconv.FormatUint(port, 10)), nil
}

// hostName checks a DNS name and puts it in lower case.
func hostName(s string) (string, error) {
	host := strings.ToLower(s)
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	if _, err := netip.ParseAddr(host); err == nil || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", errors.New("must name a host: crawlers do not read IP addresses, nor names that end in a dot or a number")
	}
	if len(labels) < 2 || len(host) > 253 {
		return "", errors.New("must name a public host")
	}
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", errors.New("the host name has an empty, a too long or a hyphenated label")
		}
		for _, c := range []byte(label) {
			if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return "", errors.New("the host name must be letters, digits and hyphens; write an internationalised one in its xn-- form")
			}
		}
	}
	return host, nil
}

// parseKey reads a private key of secp256k1.
func parseKey(text []byte) (*secp256k1.PrivateKey, error) {
	raw, err := trimKey(text)
	if err != nil {
		return nil, err
	}
	defer clear(raw)
	var n secp256k1.ModNScalar
	if overflow := n.SetByteSlice(raw); overflow || n.IsZero() {
		return nil, errors.New("the private key is not in the range of the curve")
	}
	return secp256k1.NewPrivateKey(&n), nil
}

// sign is the personal message signature (EIP-191) of an origin: r, s, v in
// hex. It is deterministic (RFC 6979).
func sign(origin string, key *secp256k1.PrivateKey) string {
	h := sha3.NewLegacyKeccak256()
	fmt.Fprintf(h, "\x19Ethereum Signed Message:\n%d%s", len(origin), origin)
	compact := ecdsa.SignCompact(key, h.Sum(nil), false) // v, r, s
	return "0x" + hex.EncodeToString(append(compact[1:], compact[0]))
}
