package e2e

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// personsLine is a request's line in the log of the local runner.
var personsLine = regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} (?:[A-Z]+ )?request request_id=(\S+) `)

// requestLines counts the lines that a log has about each request.
func requestLines(log string) map[string]int {
	lines := map[string]int{}
	for text := range strings.Lines(log) {
		var line struct {
			Msg       string `json:"msg"`
			RequestID string `json:"request_id"`
		}
		switch m := personsLine.FindStringSubmatch(text); {
		case m != nil:
			lines[m[1]]++
		case strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &line) == nil && line.Msg == "request":
			lines[line.RequestID]++
		}
	}
	return lines
}

// requestIDs are those that clients were told.
type requestIDs struct {
	mu  sync.Mutex
	all map[string]int // answers by id
}

// add notes an answer; one of the gateway's own has no id.
func (s *requestIDs) add(id string) {
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]int{}
	}
	s.all[id]++
}

// check holds the whole log of a service to one line for each request that was
// answered.
func (s *requestIDs) check(tb testing.TB, log string) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := requestLines(log)
	for id, n := range s.all {
		if n != 1 || lines[id] != 1 {
			tb.Errorf("request %s was answered %d times and has %d lines in the log", id, n, lines[id])
		}
	}
	tb.Logf("%d requests, %d lines", len(s.all), len(lines))
}
