package ssl

// attributeName is the short name of an attribute type: those of RFC 4514 §3,
// then the LDAP descriptors of RFC 4519 and 2985, then what the CA/Browser
// Forum's profiles and everybody else call the rest. "" for a type without
// one.
func attributeName(oid string) string {
	switch oid {
	case "2.5.4.3":
		return "CN"
	case "2.5.4.4":
		return "SN"
	case "2.5.4.5":
		return "serialNumber"
	case "2.5.4.6":
		return "C"
	case "2.5.4.7":
		return "L"
	case "2.5.4.8":
		return "ST"
	case "2.5.4.9":
		return "STREET"
	case "2.5.4.10":
		return "O"
	case "2.5.4.11":
		return "OU"
	case "2.5.4.12":
		return "title"
	case "2.5.4.13":
		return "description"
	case "2.5.4.15":
		return "businessCategory"
	case "2.5.4.17":
		return "postalCode"
	case "2.5.4.18":
		return "postOfficeBox"
	case "2.5.4.20":
		return "telephoneNumber"
	case "2.5.4.41":
		return "name"
	case "2.5.4.42":
		return "givenName"
	case "2.5.4.43":
		return "initials"
	case "2.5.4.44":
		return "generationQualifier"
	case "2.5.4.46":
		return "dnQualifier"
	case "2.5.4.65":
		return "pseudonym"
	case "2.5.4.97":
		return "organizationIdentifier"
	case "0.9.2342.19200300.100.1.1":
		return "UID"
	case "0.9.2342.19200300.100.1.3":
		return "mail"
	case "0.9.2342.19200300.100.1.25":
		return "DC"
	case "1.2.840.113549.1.9.1":
		return "emailAddress"
	case "1.2.840.113549.1.9.2":
		return "unstructuredName"
	case "1.2.840.113549.1.9.8":
		return "unstructuredAddress"
	case "1.3.6.1.4.1.311.60.2.1.1":
		return "jurisdictionL"
	case "1.3.6.1.4.1.311.60.2.1.2":
		return "jurisdictionST"
	case "1.3.6.1.4.1.311.60.2.1.3":
		return "jurisdictionC"
	}
	return ""
}

// algorithmName is the name of a signature algorithm in RFC 8017 and 5754
// (RSA, DSA), 5758 (ECDSA), 8410 (Edwards curves) and 9881 (ML-DSA), without
// the prefix "id-"; the OID itself for another.
func algorithmName(oid string) string {
	switch oid {
	case "1.2.840.113549.1.1.2":
		return "md2WithRSAEncryption"
	case "1.2.840.113549.1.1.4":
		return "md5WithRSAEncryption"
	case "1.2.840.113549.1.1.5":
		return "sha1WithRSAEncryption"
	case "1.2.840.113549.1.1.10":
		return "rsassaPss"
	case "1.2.840.113549.1.1.11":
		return "sha256WithRSAEncryption"
	case "1.2.840.113549.1.1.12":
		return "sha384WithRSAEncryption"
	case "1.2.840.113549.1.1.13":
		return "sha512WithRSAEncryption"
	case "1.2.840.113549.1.1.14":
		return "sha224WithRSAEncryption"
	case "1.2.840.113549.1.1.15":
		return "sha512-224WithRSAEncryption"
	case "1.2.840.113549.1.1.16":
		return "sha512-256WithRSAEncryption"
	case "1.2.840.10045.4.1":
		return "ecdsa-with-SHA1"
	case "1.2.840.10045.4.3.1":
		return "ecdsa-with-SHA224"
	case "1.2.840.10045.4.3.2":
		return "ecdsa-with-SHA256"
	case "1.2.840.10045.4.3.3":
		return "ecdsa-with-SHA384"
	case "1.2.840.10045.4.3.4":
		return "ecdsa-with-SHA512"
	case "1.2.840.10040.4.3":
		return "dsa-with-sha1"
	case "2.16.840.1.101.3.4.3.1":
		return "dsa-with-sha224"
	case "2.16.840.1.101.3.4.3.2":
		return "dsa-with-sha256"
	case "1.3.101.112":
		return "Ed25519"
	case "1.3.101.113":
		return "Ed448"
	case "2.16.840.1.101.3.4.3.17":
		return "ml-dsa-44"
	case "2.16.840.1.101.3.4.3.18":
		return "ml-dsa-65"
	case "2.16.840.1.101.3.4.3.19":
		return "ml-dsa-87"
	}
	return oid
}
