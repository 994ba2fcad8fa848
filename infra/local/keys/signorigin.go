package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// signOrigin signs the origin of a deployment with the payee's key. Crawlers show the
// signature as proof that the payee also runs the service. signOrigin prints the signature to
// out, as the setting OWNERSHIP_PROOFS, and an explanation to notes. It checks the origin before
// it asks for the key.
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
	wallet, err := x402test.WalletFromHex(strings.TrimPrefix(strings.TrimSpace(string(text)), "0x"), rand.Reader)
	if err != nil { // the error does not quote the text, because the text may be most of a key
		return errors.New("the private key must be 32 bytes of hex in the range of the curve, with or without 0x, and nothing else")
	}
	account := wallet.Address()
	proof := fmt.Sprintf("0x%x", wallet.Sign(x402.OriginDigest(normal)))
	// The service checks the proof with the same function.
	if err := x402.CheckOrigin(normal, proof, account.String()); err != nil {
		return fmt.Errorf("the signature does not verify: %w", err)
	}
	fmt.Fprintf(notes, "origin     %s\nsigned by  %s\n", normal, account.Checksum())
	if payTo != "" && x402.CheckOrigin(normal, proof, payTo) != nil {
		fmt.Fprintf(notes, "WARNING    PAY_TO is %s, another account: the service will not publish this proof. Sign with the key of PAY_TO.\n", payTo)
	}
	fmt.Fprintf(notes, "\nSet both for the deployment:\n\nBASE_URL=%s\n", normal)
	_, err = fmt.Fprintf(out, "OWNERSHIP_PROOFS=%s\n", proof)
	return err
}

// keyText reads the key from a private file, from the terminal without echo, or from standard
// input. The key is never read from an argument or the environment, because other processes
// can see those.
func keyText(file string) ([]byte, error) {
	const most = 256 // in bytes, more than a key with white space needs
	if file != "" {
		return keyfile.Read(file)
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return io.ReadAll(io.LimitReader(os.Stdin, most))
	}
	fmt.Fprint(os.Stderr, "Private key of the payee (not shown): ")
	text, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("read the key from the terminal: %w", err)
	}
	return text, nil
}

// normalise returns an origin as a crawler spells it (new URL(…).origin): scheme and host in
// lower case, the port only if it is not 443, no slash. It refuses a URL with more than an
// origin instead of shortening it, because the operator may have meant a different origin.
func normalise(s string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	switch {
	case err != nil:
		return "", errors.New("is not a URL")
	case !strings.EqualFold(u.Scheme, "https"):
		return "", errors.New("must start with https://")
	case u.User != nil, u.RawQuery != "", u.ForceQuery, strings.Contains(s, "#"), u.Path != "" && u.Path != "/":
		return "", errors.New("must be scheme and host only, such as https://api.example.com")
	}
	host := strings.ToLower(u.Hostname())
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16)
	// A public host has at least two labels, and its last label begins with a letter. All
	// top-level domains begin with a letter, and the last part of an IP address does not.
	public := regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	switch {
	case len(host) > 253 || !public.MatchString(host):
		return "", errors.New("must name a public host in letters, digits and hyphens (an internationalised one in its xn-- form); crawlers do not read IP addresses")
	case err != nil, port == 0, strings.HasSuffix(u.Host, ":"):
		return "", errors.New("has a colon and no port after it")
	case port == 443:
		return "https://" + host, nil
	}
	return fmt.Sprintf("https://%s:%d", host, port), nil
}
