package gameday

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"testing"
)

// gatewayLog is the access log of the API, as the template has it, and the metrics
// that are counted in it.
type gatewayLog struct {
	format  string
	filters []Filter
}

func readGatewayLog(t *testing.T, doc []byte) gatewayLog {
	t.Helper()
	type settings = struct {
		AccessLogSettings struct {
			DestinationArn struct {
				GetAtt string `json:"Fn::GetAtt"`
			}
			Format string
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
	if err != nil || len(filters) == 0 {
		t.Fatalf("%d metric filters: %v", len(filters), err)
	}
	for _, f := range filters {
		if log.DestinationArn.GetAtt != f.LogGroup+".Arn" {
			t.Fatalf("filter %s reads %s, the gateway writes to %s", f.ID, f.LogGroup, log.DestinationArn.GetAtt)
		}
	}
	return gatewayLog{log.Format, filters}
}

// variable is one of the gateway's in the format of its log.
var variable = regexp.MustCompile(`\$context\.([\w.]+)`)

// line is what the gateway logs of an invocation: what belongs to one request is
// left out, as "-", which the gateway writes where there is nothing.
func (g gatewayLog) line(payload []byte, err error) []byte {
	var answer struct{ StatusCode int }
	_ = json.Unmarshal(payload, &answer) // a function that failed has none
	says := map[string]string{"status": fmt.Sprint(answer.StatusCode)}
	if err != nil {
		says["status"], says["integrationErrorMessage"] = fmt.Sprint(http.StatusInternalServerError), "The Lambda function returned an error."
	}
	return variable.ReplaceAllFunc([]byte(g.format), func(name []byte) []byte {
		if v, ok := says[string(variable.FindSubmatch(name)[1])]; ok {
			return []byte(v)
		}
		return []byte("-")
	})
}

func (g gatewayLog) counts(function string, payload []byte, err error) (all []Metric) {
	if function == reconcileFunction {
		return nil // the schedule calls it, not the gateway
	}
	line := g.line(payload, err)
	for _, f := range g.filters {
		if f.Finds(line) {
			all = append(all, f.Metric)
		}
	}
	return all
}
