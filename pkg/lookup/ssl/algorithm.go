package ssl

// attributeNames are the short names of attribute types: those of RFC 4514 §3, then
// the LDAP descriptors of RFC 4519 and 2985, then what the CA/Browser Forum's profiles
// and common practice call the rest.
func attributeNames() map[string]string {
	return map[string]string{
		"2.5.4.3":                    "CN",
		"2.5.4.4":                    "SN",
		"2.5.4.5":                    "serialNumber",
		"2.5.4.6":                    "C",
		"2.5.4.7":                    "L",
		"2.5.4.8":                    "ST",
		"2.5.4.9":                    "STREET",
		"2.5.4.10":                   "O",
		"2.5.4.11":                   "OU",
		"2.5.4.12":                   "title",
		"2.5.4.13":                   "description",
		"2.5.4.15":                   "businessCategory",
		"2.5.4.17":                   "postalCode",
		"2.5.4.18":                   "postOfficeBox",
		"2.5.4.20":                   "telephoneNumber",
		"2.5.4.41":                   "name",
		"2.5.4.42":                   "givenName",
		"2.5.4.43":                   "initials",
		"2.5.4.44":                   "generationQualifier",
		"2.5.4.46":                   "dnQualifier",
		"2.5.4.65":                   "pseudonym",
		"2.5.4.97":                   "organizationIdentifier",
		"0.9.2342.19200300.100.1.1":  "UID",
		"0.9.2342.19200300.100.1.3":  "mail",
		"0.9.2342.19200300.100.1.25": "DC",
		"1.2.840.113549.1.9.1":       "emailAddress",
		"1.2.840.113549.1.9.2":       "unstructuredName",
		"1.2.840.113549.1.9.8":       "unstructuredAddress",
		"1.3.6.1.4.1.311.60.2.1.1":   "jurisdictionL",
		"1.3.6.1.4.1.311.60.2.1.2":   "jurisdictionST",
		"1.3.6.1.4.1.311.60.2.1.3":   "jurisdictionC",
	}
}

// algorithmNames are the names of signature algorithms in RFC 8017 and 5754 (RSA,
// DSA), 5758 (ECDSA), 8410 (Edwards curves) and 9881 (ML-DSA), without the prefix
// "id-".
func algorithmNames() map[string]string {
	return map[string]string{
		"1.2.840.113549.1.1.2":    "md2WithRSAEncryption",
		"1.2.840.113549.1.1.4":    "md5WithRSAEncryption",
		"1.2.840.113549.1.1.5":    "sha1WithRSAEncryption",
		"1.2.840.113549.1.1.10":   "rsassaPss",
		"1.2.840.113549.1.1.11":   "sha256WithRSAEncryption",
		"1.2.840.113549.1.1.12":   "sha384WithRSAEncryption",
		"1.2.840.113549.1.1.13":   "sha512WithRSAEncryption",
		"1.2.840.113549.1.1.14":   "sha224WithRSAEncryption",
		"1.2.840.113549.1.1.15":   "sha512-224WithRSAEncryption",
		"1.2.840.113549.1.1.16":   "sha512-256WithRSAEncryption",
		"1.2.840.10045.4.1":       "ecdsa-with-SHA1",
		"1.2.840.10045.4.3.1":     "ecdsa-with-SHA224",
		"1.2.840.10045.4.3.2":     "ecdsa-with-SHA256",
		"1.2.840.10045.4.3.3":     "ecdsa-with-SHA384",
		"1.2.840.10045.4.3.4":     "ecdsa-with-SHA512",
		"1.2.840.10040.4.3":       "dsa-with-sha1",
		"2.16.840.1.101.3.4.3.1":  "dsa-with-sha224",
		"2.16.840.1.101.3.4.3.2":  "dsa-with-sha256",
		"1.3.101.112":             "Ed25519",
		"1.3.101.113":             "Ed448",
		"2.16.840.1.101.3.4.3.17": "ml-dsa-44",
		"2.16.840.1.101.3.4.3.18": "ml-dsa-65",
		"2.16.840.1.101.3.4.3.19": "ml-dsa-87",
	}
}
