package facilitator

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// seed is the seed of an Ed25519 key that only the tests of this package use.
var seed = []byte("thirty-two bytes of test seed...")

func edSecret() string { return base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed)) }

func ecSecret(t *testing.T, curve elliptic.Curve, form string) (string, *ecdsa.PrivateKey) {
	t.Helper()
	key := must(ecdsa.GenerateKey(curve, rand.Reader))
	der := must(x509.MarshalECPrivateKey(key))
	if form == "PRIVATE KEY" {
		der = must(x509.MarshalPKCS8PrivateKey(key))
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: form, Bytes: der})), key
}

func TestCDPToken(t *testing.T) {
	t.Parallel()
	sec1, key1 := ecSecret(t, elliptic.P256(), "EC PRIVATE KEY")
	pkcs8, key8 := ecSecret(t, elliptic.P256(), "PRIVATE KEY")
	now := time.Unix(1_795_213_526, 987)
	for _, row := range []struct {
		name, secret, alg string
		public            crypto.PublicKey
	}{
		{"Ed25519", edSecret(), "EdDSA", ed25519.NewKeyFromSeed(seed).Public()},
		{"Ed25519 with a line break", edSecret() + "\n", "EdDSA", ed25519.NewKeyFromSeed(seed).Public()},
		{"SEC 1", sec1, "ES256", key1.Public()},
		{"SEC 1 on one line", strings.ReplaceAll(sec1, "\n", `\n`), "ES256", key1.Public()},
		{"PKCS 8", pkcs8, "ES256", key8.Public()},
	} {
		t.Run(row.name, func(t *testing.T) {
			creds := must(CDP("organizations/1/apiKeys/2", row.secret))
			call := httptest.NewRequest(http.MethodPost, "https://api.cdp.coinbase.com/platform/v2/x402/settle", nil)
			header := must(creds.Authorization(call, now))
			raw, ok := strings.CutPrefix(header, "Bearer ")
			if !ok {
				t.Errorf("header %q", header)
			}
			token := must(jwt.Parse(raw, func(*jwt.Token) (any, error) { return row.public, nil },
				jwt.WithValidMethods([]string{row.alg}), jwt.WithTimeFunc(func() time.Time { return now })))
			if nonce, _ := token.Header["nonce"].(string); !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(nonce) {
				t.Errorf("nonce %q", nonce)
			}
			delete(token.Header, "nonce")
			equal(t, "header", map[string]any{"alg": row.alg, "typ": "JWT", "kid": "organizations/1/apiKeys/2"}, token.Header)
			equal(t, "claims", jwt.MapClaims{
				"sub": "organizations/1/apiKeys/2", "iss": "cdp",
				"uris": []any{"POST api.cdp.coinbase.com/platform/v2/x402/settle"},
				"iat":  1_795_213_521.0, "nbf": 1_795_213_521.0, "exp": 1_795_213_641.0,
			}, token.Claims)
		})
	}
}

func TestBadCredentialsAreRefusedWithoutQuotingThem(t *testing.T) {
	t.Parallel()
	p384, _ := ecSecret(t, elliptic.P384(), "EC PRIVATE KEY")
	torn := bytes.Clone(ed25519.NewKeyFromSeed(seed))
	torn[40] ^= 1
	refused := func(what string, creds Credentials, err error) {
		t.Helper()
		if err == nil || creds.authorize != nil {
			t.Errorf("%q: accepted", what)
			return
		}
		for _, secret := range []string{"hunter2", edSecret()[:12], base64.StdEncoding.EncodeToString(seed)[:12], p384[60:72]} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q: the error holds a secret: %v", what, err)
			}
		}
	}
	long := strings.Repeat("hunter2", 1000)
	for _, token := range []string{"", "hunter2 hunter2", "hunter2\n", "hunter2ü", long} {
		creds, err := Bearer(token)
		refused(token, creds, err)
	}
	for _, key := range [][2]string{
		{"", edSecret()}, {"hunter2", ""}, {"hunter2\n", edSecret()}, {"key", "hunter2!"}, {"key", "AAAA"}, {"key", base64.StdEncoding.EncodeToString(seed)},
		{"key", base64.StdEncoding.EncodeToString(torn)}, {"key", "-----BEGIN EC PRIVATE KEY-----\nhunter2\n"}, {"key", p384}, {"key", long},
	} {
		creds, err := CDP(key[0], key[1])
		refused(key[0]+": "+key[1], creds, err)
	}
	for _, doc := range []string{
		"hunter2", `{"token":"hunter2"` + strings.Repeat(" ", maxDocument) + `}`, `{"password":"hunter2"}`, `{}`, `{"key_id":"hunter2"}`,
		`{"rpc_urls":["hunter2"],"tokn":"hunter2"}`, `{"rpc_urls":["hunter2"],"token":""}`, `{"token":"hunter2","key_id":"hunter2"}`, `{"token":"hunter2","key_secret":"hunter2"}`,
		`{"token":["hunter2"]}`, `{"token":"hunter2 "}`,
	} {
		creds, err := ParseCredentials([]byte(doc), "rpc_urls")
		refused(doc, creds, err)
	}
}

func TestParseCredentials(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"token":"abc"}`: "^Bearer abc$", `{"rpc_urls":["https://n"]}`: "^$",
		`{"key_id":"key","key_secret":"` + edSecret() + `"}`: `^Bearer [^.]+\.[^.]+\.[^.]+$`,
	} {
		creds := must(ParseCredentials([]byte(doc), "rpc_urls", "receipt_key"))
		h, err := creds.Authorization(httptest.NewRequest(http.MethodGet, "/p", nil), time.Unix(1, 0))
		if err != nil || !regexp.MustCompile(want).MatchString(h) {
			t.Errorf("%s: %q, %v", doc, h, err)
		}
	}
}

func TestCredentialsPrintWithoutTheirSecret(t *testing.T) {
	t.Parallel()
	const token = "hunter2-hunter2-hunter2"
	b := must(Bearer(token))
	c, l := must(CDP("key", edSecret())), Lazy(func(context.Context, time.Time) (Credentials, error) { return b, nil }, nil)
	must(l.Authorization(httptest.NewRequest(http.MethodGet, "/", nil), time.Unix(1, 0)))
	var out bytes.Buffer
	for _, creds := range []Credentials{{}, b, c, l} {
		conf := Config{URL: origin, Credentials: creds}
		client := must(New(conf))
		for _, v := range []any{creds, conf, &conf, client, *client, []Credentials{creds}, map[string]any{"c": creds}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				fmt.Fprintf(&out, verb+"\n", v)
			}
			slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
			slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
			if j, err := json.Marshal(v); err == nil {
				out.Write(j)
			}
		}
		fmt.Fprintln(&out, creds)
	}
	raw := ed25519.NewKeyFromSeed(seed)
	for _, secret := range []string{
		token, fmt.Sprintf("%x", token), edSecret()[:16], string(seed[:8]), fmt.Sprintf("%x", raw[:8]), fmt.Sprint([]byte(raw[:8]))[1:20],
	} {
		if i := strings.Index(out.String(), secret); i >= 0 {
			t.Errorf("%q was printed: …%s…", secret, out.String()[max(0, i-80):i+20])
		}
	}
}

// FuzzParseCredentials checks that ParseCredentials returns either an error or credentials,
// and that the header of accepted credentials has only one token after "Bearer ".
func FuzzParseCredentials(f *testing.F) {
	for _, doc := range []string{
		`{"token":"abc"}`, `{"key_id":"k","key_secret":"` + edSecret() + `"}`, `{"key_secret":"0"}`, `{"a":"","a":""}`,
		`{"key_id":"k","key_secret":"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		creds, err := ParseCredentials(doc)
		if (creds.authorize == nil) == (err == nil) {
			t.Fatalf("%v, %v", creds, err)
		}
		if err != nil {
			return
		}
		h, err := creds.Authorization(httptest.NewRequest(http.MethodGet, "/", nil), time.Now())
		if err != nil || !strings.HasPrefix(h, "Bearer ") || strings.ContainsAny(h[7:], " \r\n") {
			t.Errorf("header %q, %v", h, err)
		}
	})
}
