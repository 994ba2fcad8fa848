package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"golang.org/x/crypto/sha3"
	"golang.org/x/term"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// runSignOrigin signs the origin of a deployment with the payee's key. Crawlers
// show the signature as proof that whoever is paid also runs the service
// (OWNERSHIP_PROOFS).
//
// The key is read from the terminal without echo, from standard input or from
// a file; never from an argument or the environment, where other processes see
// it. It is used for one signature and goes nowhere.
func runSignOrigin(args []string, out, notes io.Writer) int {
	flags := flag.NewFlagSet("sign-origin", flag.ContinueOnError)
	flags.SetOutput(notes)
	origin := flags.String("origin", "", "origin of the deployment, such as https://api.example.com")
	payTo := flags.String("pay-to", "", "PAY_TO of the deployment, to compare the key's account with")
	file := flags.String("key-file", "", "file with the private key; default: the terminal, or standard input")
	flags.Usage = func() {
		fmt.Fprintln(notes, "usage: make sign-origin ORIGIN=https://api.example.com [PAY_TO=0x…] [KEY_FILE=…]")
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case *origin == "" || flags.NArg() != 0:
		flags.Usage()
		return exitUsage
	}
	if err := signOrigin(*origin, *payTo, func() ([]byte, error) { return keyText(*file) }, out, notes); err != nil {
		fmt.Fprintln(notes, err)
		return exitFailed
	}
	return 0
}

// signOrigin prints the setting on out, and what it is for on notes. The origin is
// looked at before anybody is asked for a key.
func signOrigin(origin, payTo string, key func() ([]byte, error), out, notes io.Writer) error {
	normal, err := normalise(origin)
	if err != nil {
		return fmt.Errorf("ORIGIN: %w", err)
	}
	if payTo != "" {
		if _, err := x402.ParseAddress(payTo); err != nil {
			return fmt.Errorf("PAY_TO: %w", err)
		}
	}
	text, err := key()
	if err != nil {
		return err
	}
	defer clear(text)
	secret, err := parseKey(text)
	if err != nil {
		return err
	}
	defer secret.Zero()
	account := x402.KeyAddress(secret.PubKey())
	proof := sign(normal, secret)
	// The service reads it with the same function.
	if err := x402.CheckOrigin(normal, proof, account.String()); err != nil {
		return fmt.Errorf("the signature does not verify: %w", err)
	}
	fmt.Fprintf(notes, "origin     %s\nsigned by  %s\n", normal, account.Checksum())
	if payTo != "" && x402.CheckOrigin(normal, proof, payTo) != nil {
		fmt.Fprintf(notes, "WARNING    PAY_TO is %s, another account: the service leaves this proof out. Sign with the key of PAY_TO.\n", payTo)
	}
	fmt.Fprintf(notes, "\nSet both for the deployment:\n\nBASE_URL=%s\n", normal)
	_, err = fmt.Fprintf(out, "OWNERSHIP_PROOFS=%s\n", proof)
	return err
}

// maxKeyText is more than a key with its white space takes.
const maxKeyText = 256

// keyText reads the key from a file that is private, from the terminal without echo, or from
// standard input.
func keyText(file string) ([]byte, error) {
	if file != "" {
		return keyfile.Read(file)
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return io.ReadAll(io.LimitReader(os.Stdin, maxKeyText))
	}
	fmt.Fprint(os.Stderr, "Private key of the payee (not shown): ")
	text, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("read the key from the terminal: %w", err)
	}
	return text, nil
}

// errKey says nothing about what was read: it may be most of a key.
var errKey = errors.New("the private key must be 32 bytes of hex, with 0x or without, and nothing else")

// trimKey is the hex digits of a key.
func trimKey(text []byte) ([]byte, error) {
	digits := bytes.TrimPrefix(bytes.TrimSpace(text), []byte("0x"))
	raw := make([]byte, hex.DecodedLen(len(digits)))
	if len(raw) != 32 {
		return nil, errKey
	}
	if _, err := hex.Decode(raw, digits); err != nil {
		return nil, errKey
	}
	return raw, nil
}

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
