package ssl

import (
	"crypto/tls"

	"golang.org/x/crypto/cryptobyte"
)

// Numbers of RFC 8446 §4, §5 and §B.
const (
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23

	fatal = 2 // alert level

	messageServerHello = 2
	messageCertificate = 11

	extensionVersions = 43

	maxRecord = 16384 + 2048 // payload of a protected record, TLS 1.2's larger one
)

// flight is what a server said in its first flight, as far as it was read.
type flight struct {
	hello          bool // a ServerHello came; version and suite are its choice
	version, suite uint16
	leaf           []byte // the first certificate, DER or not; nil if none came
	alert          int    // the fatal alert in it; -1 if none
}

// readFlight reads the bytes that a server sent in a handshake. secret is the
// server_handshake_traffic_secret of RFC 8446 §7.1; without it nothing behind
// a TLS 1.3 ServerHello can be read. Reading ends with the first certificate,
// at the end of the bytes, or at the first thing that is not TLS. The
// certificate counts as soon as it is there in full, even when the message
// around it is not.
func readFlight(raw, secret []byte) flight {
	f := flight{alert: -1}
	in := cryptobyte.String(raw)
	var stream []byte
	var key *opener
	for f.leaf == nil {
		var header, payload []byte
		var size uint16
		if !in.ReadBytes(&header, 3) || header[1] != 3 || !in.ReadUint16(&size) || size > maxRecord ||
			!in.ReadBytes(&payload, int(size)) {
			return f
		}
		kind := header[0]
		if kind == recordData {
			if key == nil {
				if key = newOpener(f, secret); key == nil {
					return f
				}
			}
			var ok bool
			if kind, payload, ok = key.open(payload); !ok {
				return f
			}
		}
		switch {
		case kind == recordAlert && len(payload) == 2 && payload[0] == fatal:
			f.alert = int(payload[1])
		case kind == recordHandshake:
			stream = f.read(append(stream, payload...))
		}
	}
	return f
}

// read takes whole messages off the stream and returns what is left of it.
func (f *flight) read(stream []byte) []byte {
	for len(stream) >= 4 {
		s := cryptobyte.String(stream)
		var kind uint8
		var size uint32
		s.ReadUint8(&kind)
		s.ReadUint24(&size)
		if kind == messageCertificate && f.hello && f.leaf == nil {
			f.leaf = firstCertificate(s[:min(int(size), len(s))], f.version)
		}
		if int(size) > len(s) || f.leaf != nil {
			break
		}
		if kind == messageServerHello {
			f.readHello(s[:size])
		}
		stream = s[size:]
	}
	return stream
}

// readHello reads a ServerHello (RFC 8446 §4.1.3, RFC 5246 §7.4.1.3). A
// HelloRetryRequest looks like one and makes the same choice; the ServerHello
// after it counts.
func (f *flight) readHello(s cryptobyte.String) {
	var session, extensions cryptobyte.String
	var version, suite uint16
	if !s.ReadUint16(&version) || !s.Skip(32) || !s.ReadUint8LengthPrefixed(&session) ||
		!s.ReadUint16(&suite) || !s.Skip(1) {
		return
	}
	f.hello, f.version, f.suite = true, version, suite
	if !s.ReadUint16LengthPrefixed(&extensions) {
		return
	}
	for !extensions.Empty() {
		var kind uint16
		var body cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&body) {
			return
		}
		if kind == extensionVersions {
			body.ReadUint16(&f.version)
		}
	}
}

// firstCertificate returns the first entry of a Certificate message, nil while
// it is not there in full. Lengths of what is around it only have to leave
// room for it.
func firstCertificate(body cryptobyte.String, version uint16) []byte {
	var context cryptobyte.String
	var list, size uint32
	var der []byte
	if version == tls.VersionTLS13 && !body.ReadUint8LengthPrefixed(&context) {
		return nil
	}
	if !body.ReadUint24(&list) || !body.ReadUint24(&size) || size == 0 || size+3 > list || !body.ReadBytes(&der, int(size)) {
		return nil
	}
	return der
}
