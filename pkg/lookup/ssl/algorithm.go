package ssl

import (
	"slices"
	"strings"
)

// attributeNames are the short names of attribute types by OID: those of RFC 4514 §3, then
// the LDAP descriptors of RFC 4519 and 2985, then what the CA/Browser Forum's profiles
// and common practice call the rest.
func attributeNames() map[string]string {
	return numbered(map[string]string{
		"2.5.4.": "3 CN 4 SN 5 serialNumber 6 C 7 L 8 ST 9 STREET 10 O 11 OU 12 title 13 description " +
			"15 businessCategory 17 postalCode 18 postOfficeBox 20 telephoneNumber 41 name 42 givenName " +
			"43 initials 44 generationQualifier 46 dnQualifier 65 pseudonym 97 organizationIdentifier",
		"0.9.2342.19200300.100.1.": "1 UID 3 mail 25 DC",
		"1.2.840.113549.1.9.":      "1 emailAddress 2 unstructuredName 8 unstructuredAddress",
		"1.3.6.1.4.1.311.60.2.1.":  "1 jurisdictionL 2 jurisdictionST 3 jurisdictionC",
	})
}

// algorithmNames are the names of signature algorithms by OID in RFC 8017 and 5754 (RSA,
// DSA), 5758 (ECDSA), 8410 (Edwards curves) and 9881 (ML-DSA), without the prefix
// "id-".
func algorithmNames() map[string]string {
	return numbered(map[string]string{
		"1.2.840.113549.1.1.": "2 md2WithRSAEncryption 4 md5WithRSAEncryption 5 sha1WithRSAEncryption 10 rsassaPss " +
			"11 sha256WithRSAEncryption 12 sha384WithRSAEncryption 13 sha512WithRSAEncryption " +
			"14 sha224WithRSAEncryption 15 sha512-224WithRSAEncryption 16 sha512-256WithRSAEncryption",
		"1.2.840.10045.4.":      "1 ecdsa-with-SHA1",
		"1.2.840.10045.4.3.":    "1 ecdsa-with-SHA224 2 ecdsa-with-SHA256 3 ecdsa-with-SHA384 4 ecdsa-with-SHA512",
		"1.2.840.10040.4.":      "3 dsa-with-sha1",
		"2.16.840.1.101.3.4.3.": "1 dsa-with-sha224 2 dsa-with-sha256 17 ml-dsa-44 18 ml-dsa-65 19 ml-dsa-87",
		"1.3.101.":              "112 Ed25519 113 Ed448",
	})
}

// numbered are names by OID: in each line a number and a name in turn, below an OID.
func numbered(lines map[string]string) map[string]string {
	names := map[string]string{}
	for below, line := range lines {
		for pair := range slices.Chunk(strings.Fields(line), 2) {
			names[below+pair[0]] = pair[1]
		}
	}
	return names
}
