package guard

import "strings"

// isSpecial reports whether a normalised name is, or lies under, a name that
// is not part of the public DNS or that must not be asked about.
func isSpecial(name string) bool {
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, ".") {
		switch rest {
		// Special-use domain names (IANA registry of RFC 6761 and its
		// successors: RFC 6762, 7686, 9476 and the whole of arpa, which holds
		// home.arpa, ipv4only.arpa and the reverse trees).
		case "localhost", "local", "test", "example", "invalid", "onion", "alt", "arpa":
			return true
		// Kept for private use, or refused delegation, by ICANN.
		case "internal", "corp", "home", "mail":
			return true
		// Private by practice (RFC 6762 appendix G).
		case "lan", "intranet", "private", "localdomain", "domain", "workgroup":
			return true
		// A cloud's metadata service under a public top-level domain.
		case "metadata.goog":
			return true
		}
	}
	return false
}
