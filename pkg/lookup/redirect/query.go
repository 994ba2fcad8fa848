package redirect

import (
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// Query is the question of spec §4.6.
type Query = guard.Query

// Result is the redirect trace of spec §2.5.
type Result struct {
	Domain     string      `json:"domain" doc:"Normalized FQDN traced"`
	StartURL   string      `json:"start_url" doc:"First URL requested"`
	FinalURL   string      `json:"final_url" doc:"Last URL successfully fetched"`
	HopCount   int         `json:"hop_count" doc:"Requests that made an entry of hops; a HEAD that fell back to GET made one"`
	Truncated  bool        `json:"truncated" doc:"True when the hop cap stopped a chain that was still redirecting"`
	StopReason *StopReason `json:"stop_reason" doc:"Why the trace ended other than by a non-redirect status" schema:"StopReason"`
	Hops       []Hop       `json:"hops" doc:"Per-hop facts" schema:"Hop"` // never empty
}

// Hop is one URL that was answered. A HEAD that fell back to GET is one hop.
type Hop struct {
	Index  int    `json:"index" doc:"From 0"`
	URL    string `json:"url" doc:"URL requested"` // as requested: normalised, without fragment
	Method string `json:"method" doc:"Method that produced the answer" enum:"HEAD,GET" schema:"ProbeMethod"`
	Status int    `json:"status" doc:"HTTP status"`
	PeerIP string `json:"peer_ip" doc:"Connected peer IP address"`
	// Location is the header as received, whatever the status; nil without
	// one.
	Location *string `json:"location" doc:"Location as received"`
}

// StopReason says why a trace ended other than by a status that does not redirect.
type StopReason string

// The stop reasons of spec §2.5. The last five are error codes of the next
// hop.
const (
	MaxHops          StopReason = "max_hops"
	Loop             StopReason = "loop"
	MissingLocation  StopReason = "missing_location"
	InvalidLocation  StopReason = "invalid_location"
	InsecureRedirect StopReason = "insecure_redirect"
	BlockedHost      StopReason = "blocked_host"
	BlockedPort      StopReason = "blocked_port"
	BlockedAddress              = StopReason(lookup.BlockedAddress)
	NXDomain                    = StopReason(lookup.NXDomain)
	ConnectFailed               = StopReason(lookup.ConnectFailed)
	HandshakeFailed             = StopReason(lookup.HandshakeFailed)
	HTTPFailed                  = StopReason(lookup.HTTPFailed)
)

// StopReasons are all of them, in the order of spec §2.5.
func StopReasons() []StopReason {
	return []StopReason{
		MaxHops, Loop, MissingLocation, InvalidLocation, InsecureRedirect, BlockedHost, BlockedPort,
		BlockedAddress, NXDomain, ConnectFailed, HandshakeFailed, HTTPFailed,
	}
}
