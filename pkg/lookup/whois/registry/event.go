package registry

import (
	"strings"
	"time"

	"github.com/openrdap/rdap"
)

// stamp is how a result writes a time.
const stamp = "2006-01-02T15:04:05Z"

// layouts are the forms of eventDate that registries use. RFC 9083 §4.5 wants
// the first; a time without a zone is UTC, a date without a time is midnight.
// Each takes a fraction of a second.
func layouts() []string {
	return []string{
		time.RFC3339,
		"2006-01-02T15:04:05Z0700",
		"2006-01-02T15:04:05",
		"2006-01-02 15:04:05Z07:00",
		"2006-01-02 15:04:05",
		time.DateOnly,
	}
}

// event is the time of the first event with an action and a date that can be
// read.
func event(events []rdap.Event, action string) *string {
	for _, e := range events {
		if !strings.EqualFold(strings.TrimSpace(e.Action), action) {
			continue
		}
		if t, ok := date(e.Date); ok {
			return &t
		}
	}
	return nil
}

func date(published string) (string, bool) {
	if len(published) > 64 {
		return "", false
	}
	// RFC 3339 §5.6 allows t and z in lower case; Go's layouts do not.
	published = strings.ToUpper(strings.TrimSpace(published))
	for _, l := range layouts() {
		t, err := time.Parse(l, published)
		if err != nil {
			continue
		}
		t = t.UTC()
		if t.Year() < 1 || t.Year() > 9999 { // an offset can leave the years of RFC 3339
			return "", false
		}
		return t.Format(stamp), true
	}
	return "", false
}
