package main

import (
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// playWalletPath is the path at which the play wallet signs.
const playWalletPath = "/play-wallet/sign"

// maxAuthorization is the size limit of a request for a signature, in bytes.
const maxAuthorization = 1 << 10

//go:embed playwallet.js
var playWalletScript string

// playWallet pays for visitors whose browser has no wallet. Its key is created at start and
// never written anywhere. The account of the key has no real money, so only the play-money
// facilitator of this process accepts its signatures. Only startPlayMoney creates a
// playWallet, together with the play-money facilitator.
type playWallet struct {
	wallet *x402test.Wallet
	terms  x402.Terms
	now    func() time.Time
}

func newPlayWallet(terms x402.Terms, now func() time.Time) (*playWallet, error) {
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return nil, err
	}
	return &playWallet{wallet: wallet, terms: terms, now: now}, nil
}

// script returns a script that announces the wallet to a page.
func (p *playWallet) script() string {
	_, chain, _ := strings.Cut(p.terms.Network, ":")
	return strings.NewReplacer(
		"{{account}}", p.wallet.Address().Checksum(),
		"{{chain}}", chain,
		"{{path}}", playWalletPath,
	).Replace(playWalletScript)
}

// addToService returns a handler that serves the service and, at playWalletPath, the wallet.
// The wallet signs only for pages of the given origin.
func (p *playWallet) addToService(service http.Handler, origin string) (http.Handler, error) {
	originCheck := http.NewCrossOriginProtection()
	if err := originCheck.AddTrustedOrigin(originOf(origin)); err != nil {
		return nil, fmt.Errorf("the origin of the service: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != playWalletPath {
			service.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		switch {
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "The play wallet takes POST only.", http.StatusMethodNotAllowed)
		case r.Header.Get("Origin") == "" || originCheck.Check(r) != nil:
			http.Error(w, "The play wallet signs for the pages of this service only.", http.StatusForbidden)
		case kind != "application/json":
			http.Error(w, "The play wallet takes application/json only.", http.StatusUnsupportedMediaType)
		default:
			p.answer(w, r)
		}
	}), nil
}

// originOf returns the origin of a base URL.
func originOf(baseURL string) string {
	u, err := url.Parse(baseURL)
	if err != nil {
		return baseURL
	}
	return u.Scheme + "://" + u.Host
}

// answer answers a page's request for a signature.
func (p *playWallet) answer(w http.ResponseWriter, r *http.Request) {
	var requested x402.Authorization
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAuthorization))
	body.DisallowUnknownFields()
	if err := body.Decode(&requested); err != nil || body.More() {
		http.Error(w, "The play wallet signs a transfer authorization (EIP-3009), which this is not.", http.StatusBadRequest)
		return
	}
	signature, err := p.sign(requested)
	if err != nil {
		http.Error(w, "The play wallet did not sign: "+err.Error()+".", http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"signature": signature}) // an error means that the page was closed
}

// sign signs a payment for one of this service's offers. It always uses the network and the
// token of the play money, whatever the page sent.
func (p *playWallet) sign(requested x402.Authorization) (string, error) {
	priced := func(op catalog.Operation) bool { return op.Amount == requested.Value }
	if !slices.ContainsFunc(catalog.All(), priced) {
		return "", errors.New("it pays the prices of this service and nothing else")
	}
	until, err := strconv.ParseInt(requested.ValidBefore, 10, 64)
	now := p.now()
	if err != nil || until <= now.Unix() || until > now.Add(x402.MaxWindow).Unix() {
		return "", fmt.Errorf("it signs what ends within %s from now", x402.MaxWindow)
	}
	allowed := requested
	allowed.From = p.wallet.Address().Checksum()
	allowed.To = p.terms.PayTo
	allowed.ValidAfter = "0"
	if requested != allowed {
		return "", errors.New("it pays from its account to that of this service, at once")
	}
	digest, err := x402test.Digest(allowed, p.terms)
	if err != nil {
		return "", err
	}
	return "0x" + hex.EncodeToString(p.wallet.Sign(digest)), nil
}
