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

// The members of a facilitator's secret, a JSON object.
const (
	SecretKeyID      = "key_id" // of a CDP key
	SecretKey        = "key_secret"
	SecretToken      = "token"       // in the place of both
	SecretNodes      = "rpc_urls"    // a list
	SecretReceiptKey = "receipt_key" // as make receipt-key prints it
)

// SecretMembers are the members that the functions read.
func SecretMembers() []string {
	return []string{SecretKeyID, SecretKey, SecretToken, SecretNodes, SecretReceiptKey}
}

// CheckSecret says everything that is wrong with the document of a facilitator's secret, as
// the functions read it. Its errors never contain what is in the document.
func CheckSecret(doc []byte) error {
	_, credentials := secretCredentials(doc)
	_, nodes := secretNodeURLs(doc)
	_, key := secretReceiptKey(doc)
	return errors.Join(credentials, nodes, key)
}

// SecretReceiptPublicKey is the public key of the one that signs receipts, as
// ReceiptPublicKeys has it; empty where the document holds none.
func SecretReceiptPublicKey(doc []byte) string {
	key, err := secretReceiptKey(doc)
	if err != nil || key == nil {
		return ""
	}
	public, _ := key.Public().(ed25519.PublicKey)
	return receipt.FormatPublic(public)
}

// secretCredentials are the facilitator's; the zero value where the document has none.
func secretCredentials(doc []byte) (facilitator.Credentials, error) {
	return facilitator.ParseCredentials(doc, SecretReceiptKey, SecretNodes)
}

// secretNodeURLs are the chain's nodes, of which there may be none.
func secretNodeURLs(doc []byte) ([]string, error) {
	var v struct {
		URLs []string `json:"rpc_urls"`
	}
	if json.Unmarshal(doc, &v) != nil || slices.ContainsFunc(v.URLs, insecure) {
		return nil, errors.New("rpc_urls of the secret is not a list of https URLs") // without quoting it
	}
	if len(v.URLs) > chain.MaxNodes {
		return nil, fmt.Errorf("rpc_urls of the secret has more than %d URLs", chain.MaxNodes)
	}
	return v.URLs, nil
}

// secretReceiptKey is the key that signs receipts; nil where the document has none.
func secretReceiptKey(doc []byte) (ed25519.PrivateKey, error) {
	var v struct {
		Key string `json:"receipt_key"`
	}
	if json.Unmarshal(doc, &v) != nil { // its text would quote the secret
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
