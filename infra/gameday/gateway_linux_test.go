package gameday

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

// gatewayLog is the access log of the API, as the template has it, and the metrics
// that are counted in it.
type gatewayLog struct {
	format  string
	filters []Filter
}

// readGatewayLog reads it from the synthesized template.
func readGatewayLog(t *testing.T) gatewayLog {
	t.Helper()
	doc, err := synthesized()
	if err != nil {
		t.Fatal(err)
	}
	var tpl struct {
		Resources struct {
			Api struct {
				Properties struct {
					AccessLogSettings struct {
						DestinationArn struct {
							GetAtt string `json:"Fn::GetAtt"`
						}
						Format string
					}
				}
			}
		}
	}
	if err := json.Unmarshal(doc, &tpl); err != nil {
		t.Fatal(err)
	}
	settings := tpl.Resources.Api.Properties.AccessLogSettings
	g := gatewayLog{format: settings.Format}
	if g.filters, err = ReadFilters(doc, stack); err != nil || len(g.filters) == 0 {
		t.Fatalf("%d metric filters: %v", len(g.filters), err)
	}
	for _, f := range g.filters {
		if to := settings.DestinationArn.GetAtt; to != f.LogGroup+".Arn" {
			t.Fatalf("filter %s reads %s, the gateway writes to %s", f.ID, f.LogGroup, to)
		}
	}
	return g
}

// variable is one of the gateway's in the format of its log.
var variable = regexp.MustCompile(`\$context\.([\w.]+)`)

// line is what the gateway logs of an invocation: what a request has of its own is
// left out, as "-", which the gateway writes where there is nothing.
func (g gatewayLog) line(e lambdahost.Ended) []byte {
	values := map[string]string{}
	var answer struct{ StatusCode int }
	switch {
	case errors.Is(e.Err, lambdahost.ErrThrottled):
		values["status"], values["integrationErrorMessage"] = fmt.Sprint(http.StatusServiceUnavailable), "Rate Exceeded."
	case e.Err != nil:
		values["status"], values["integrationErrorMessage"] = fmt.Sprint(http.StatusInternalServerError), "The Lambda function returned an error."
	case json.Unmarshal(e.Result.Payload, &answer) == nil:
		values["status"] = fmt.Sprint(answer.StatusCode)
	}
	text := variable.ReplaceAllStringFunc(g.format, func(name string) string {
		if v, ok := values[variable.FindStringSubmatch(name)[1]]; ok {
			return v
		}
		return "-"
	})
	return []byte(text)
}

// samples are what the filters count of an invocation.
func (g gatewayLog) samples(e lambdahost.Ended) []Sample {
	if e.Function == reconcileFunction {
		return nil // the schedule calls it, not the gateway
	}
	line := g.line(e)
	var all []Sample
	for _, f := range g.filters {
		if s, ok := f.Read(line); ok {
			all = append(all, s)
		}
	}
	return all
}
