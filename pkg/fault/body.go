package fault

// Body is the JSON of every error but a 402 (design §3).
type Body struct {
	Error     Detail `json:"error"`
	RequestID string `json:"request_id"`
	// DocsURL is where the documentation explains errors; left out where the
	// public origin is not known.
	DocsURL string `json:"docs_url,omitempty"`
}

// Detail is what went wrong, and what it means for whoever paid.
type Detail struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Charged is whether money moved for the purchase; null when that is not
	// known.
	Charged *bool `json:"charged"`
	// Retryable says to send the request again, for at most one charge in all.
	Retryable bool `json:"retryable"`
	// RetryAfter is in seconds, where no header says it; 0 is none.
	RetryAfter int `json:"retry_after,omitempty"`
}
