package boot

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// The members of a facilitator's secret, which is a JSON object.
const (
	SecretKeyID      = "key_id" // the id of a CDP key
	SecretKey        = "key_secret"
	SecretToken      = "token"       // a bearer token, instead of a CDP key
	SecretNodes      = "rpc_urls"    // a list of URLs
	SecretReceiptKey = "receipt_key" // the receipt key, as make receipt-key prints it
)

// SecretMembers returns the names of the members that the functions read.
func SecretMembers() []string {
	return []string{SecretKeyID, SecretKey, SecretToken, SecretNodes, SecretReceiptKey}
}

// CheckSecret returns an error that lists everything that is wrong with the document of a
// facilitator's secret. The error never quotes the document.
func CheckSecret(doc []byte) error {
	_, credentials := secretCredentials(doc)
	_, nodes := secretNodeURLs(doc)
	_, key := secretReceiptKey(doc)
	return errors.Join(credentials, nodes, key)
}

// SecretReceiptPublicKey returns the public key of the receipt key in a secret, in the format
// of RECEIPT_PUBLIC_KEYS, or "" if the secret has no valid receipt key.
func SecretReceiptPublicKey(doc []byte) string {
	key, err := secretReceiptKey(doc)
	if err != nil || key == nil {
		return ""
	}
	public, _ := key.Public().(ed25519.PublicKey)
	return receipt.FormatPublic(public)
}

// secretCredentials returns the facilitator's credentials, or the zero value if the document
// has none.
func secretCredentials(doc []byte) (facilitator.Credentials, error) {
	return facilitator.ParseCredentials(doc, SecretReceiptKey, SecretNodes)
}

// secretNodeURLs returns the URLs of nodes in the document; there may be none.
func secretNodeURLs(doc []byte) ([]string, error) {
	var v struct {
		URLs []string `json:"rpc_urls"`
	}
	if json.Unmarshal(doc, &v) != nil || slices.ContainsFunc(v.URLs, isInsecure) {
		return nil, errors.New("rpc_urls of the secret is not a list of https URLs") // the error must not quote the secret
	}
	if len(v.URLs) > chain.MaxNodes {
		return nil, fmt.Errorf("rpc_urls of the secret has more than %d URLs", chain.MaxNodes)
	}
	return v.URLs, nil
}

// secretReceiptKey returns the key that signs receipts, or nil if the document has none.
func secretReceiptKey(doc []byte) (ed25519.PrivateKey, error) {
	var v struct {
		Key string `json:"receipt_key"`
	}
	if json.Unmarshal(doc, &v) != nil { // the decoder's error would quote the secret
		return nil, service.Public("the secret is not a JSON object with the text receipt_key")
	}
	if v.Key == "" {
		return nil, nil
	}
	key, err := receipt.ParseKey(v.Key)
	if err != nil {
		return nil, fmt.Errorf("receipt_key of the secret %w", err)
	}
	return key, nil
}
