// Package headers is HTTP Headers: the allowlisted response headers of
// https://{domain}/ (spec §2.4, §4.5).
//
// It guarantees that the host's addresses were all found to be public before
// one was connected to, that a result holds the sixteen headers of the spec
// and no other, so no cookie, and that nothing it started outlives a call. It
// verifies no certificate, follows no redirect and reads no body.
package headers
