package gameday

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// measurements is a Source. It holds the logs of the functions and of the gateway, and their
// metrics by round.
type measurements struct {
	gateway gatewayLog
	mu      sync.Mutex
	text    bytes.Buffer // what the functions printed, and the errors of failed invocations
	values  []roundSample
	rounds  []int64 // when each round began, in Unix milliseconds
	faults  []error // one error for each line that CloudWatch would drop
	running int     // number of running invocations
}

// roundSample is a sample with the round to which it belongs.
type roundSample struct {
	Sample
	round int
}

// beginRound waits for the next millisecond, and begins a round with it. So the timestamp of
// every earlier line is before the round.
func (s *measurements) beginRound() {
	now := time.Now().UnixMilli()
	for time.Now().UnixMilli() == now {
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds = append(s.rounds, now+1)
}

// Write adds whole lines of the functions' output.
func (s *measurements) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	for line := range bytes.Lines(p) {
		samples, at, err := ReadEMF(line)
		if err != nil {
			s.faults = append(s.faults, fmt.Errorf("%w: %.500s", err, line))
		}
		if bytes.Contains(line, []byte(`"msg":"re`)) && !bytes.Contains(line, []byte(`"lambda_request_id":"`)) {
			s.faults = append(s.faults, fmt.Errorf("the line of a request, or of reconcile, does not name its invocation: %.500s", line))
		}
		for _, x := range samples {
			s.values = append(s.values, roundSample{x, s.roundOf(at)})
		}
	}
	return len(p), nil
}

// recordBegin records the metrics that Lambda counts when an invocation begins.
func (s *measurements) recordBegin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	for _, name := range []string{"ConcurrentExecutions", "ClaimedAccountConcurrency"} {
		s.values = append(s.values, roundSample{Sample{Metric{"AWS/Lambda", name, ""}, float64(s.running)}, s.roundOf(time.Now().UnixMilli())})
	}
}

// recordEnd records the end of an invocation: its error, if any, in the log, and the metrics
// that the filters count in the gateway's log line for it.
func (s *measurements) recordEnd(function string, payload []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if err != nil {
		fmt.Fprintln(&s.text, err)
	}
	for _, m := range s.gateway.metricsOf(function, payload, err) {
		s.values = append(s.values, roundSample{Sample{m, 1}, s.roundOf(time.Now().UnixMilli())})
	}
}

// Values implements Source: a round is a period.
func (s *measurements) Values(m Metric, round int) (out []float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.values {
		if v.Metric == m && v.round == round {
			out = append(out, v.Value)
		}
	}
	return out
}

func (s *measurements) roundOf(at int64) int {
	for i := len(s.rounds) - 1; i >= 0; i-- {
		if at >= s.rounds[i] {
			return i
		}
	}
	return -1
}

func (s *measurements) currentRound() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rounds) - 1
}

// waitForText waits until the log contains a text, and reports whether it does. It has to
// wait, because the log comes through a pipe.
func (s *measurements) waitForText(ctx context.Context, text string) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !strings.Contains(s.log(), text) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond): // the polling interval
		}
	}
	return true
}

// timeoutMessage matches the log lines of calls that exceeded their time limit.
var timeoutMessage = regexp.MustCompile(`deadline exceeded|took too long|i/o timeout|Client\.Timeout|Task timed out`)

func (s *measurements) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// gatewayLog has the format of the API's access log, and the filters that count metrics in it.
type gatewayLog struct {
	format  string
	filters []Filter
}

func readGatewayLog(t *testing.T, doc []byte) gatewayLog {
	type settings = struct {
		AccessLogSettings struct {
			DestinationArn map[string]string
			Format         string
		}
	}
	var tpl struct {
		Resources struct{ Api struct{ Properties settings } }
	}
	if err := json.Unmarshal(doc, &tpl); err != nil {
		t.Fatal(err)
	}
	log := tpl.Resources.Api.Properties.AccessLogSettings
	filters, err := ReadFilters(doc, stack)
	// The filters of other logs are for alarms on releases, which are not tested here.
	filters = slices.DeleteFunc(filters, func(f Filter) bool { return log.DestinationArn["Fn::GetAtt"] != f.LogGroup+".Arn" })
	if err != nil || len(filters) == 0 {
		t.Fatalf("%d metric filters of what the gateway writes to %s: %v", len(filters), log.DestinationArn, err)
	}
	return gatewayLog{log.Format, filters}
}

// logVariable matches a variable in the format of the gateway's log.
var logVariable = regexp.MustCompile(`\$context\.([\w.]+)`)

// line returns the gateway's log line for an invocation. It has the status and the integration
// error; all other variables are "-".
func (g gatewayLog) line(payload []byte, err error) []byte {
	var answer struct{ StatusCode int }
	_ = json.Unmarshal(payload, &answer) // a function that failed has no status
	values := map[string]string{"status": fmt.Sprint(answer.StatusCode)}
	if err != nil {
		values["status"] = fmt.Sprint(http.StatusInternalServerError)
		values["integrationErrorMessage"] = "The Lambda function returned an error."
	}
	return logVariable.ReplaceAllFunc([]byte(g.format), func(name []byte) []byte {
		if v, ok := values[string(logVariable.FindSubmatch(name)[1])]; ok {
			return []byte(v)
		}
		return []byte("-")
	})
}

// metricsOf returns the metrics that the filters count for an invocation.
func (g gatewayLog) metricsOf(function string, payload []byte, err error) (all []Metric) {
	if function == reconcileFunction {
		return nil // the schedule, not the gateway, calls this function
	}
	line := g.line(payload, err)
	for _, f := range g.filters {
		if _, yes := f.Finds(line); yes {
			all = append(all, f.Metric)
		}
	}
	return all
}
