// Package ssl is the SSL Inspector: the leaf certificate that a public host
// presents on port 443 (spec §2.2, §4.3).
//
// The leaf is the product. Nothing about it is verified but that it can be
// read, and a handshake that fails after the certificate came is still a
// result:
//
//	handshake completed                        the result, with the connection
//	failed, hung or timed out, leaf was seen   the result
//	peer answered, but sent no leaf            once more with at most TLS 1.2 if
//	                                           that can help, then handshake_failed
//	no TLS, or no certificate that reads       handshake_failed
//	silence, or bytes too slow                 ssl_timeout
//
// The certificate is read by this package and not by crypto/x509, which
// refuses many that are in use. crypto/tls refuses the handshake when
// crypto/x509 refuses any certificate of the chain, so what the server sent is
// recorded during the handshake, and the leaf is taken from the recording when
// crypto/tls does not hand it out: in plain text up to TLS 1.2, decrypted with
// the handshake's own secret in TLS 1.3. No second connection is made for that.
//
// It does not build or verify chains, check revocation, resume sessions or
// send application data. It connects to nothing but the addresses of a
// guard.Target. crypto/tls takes no Certificate message above 256 KiB; of a
// larger one only a leaf in its first record, so of at most 16 KiB, is seen.
package ssl
