package boot

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// paused reads whether payments are turned away by intent.
func (e *environment) paused() bool {
	v := e.text(varSelling, "yes")
	if v != "yes" && v != "no" {
		e.fault(varSelling, "must be yes or no")
	}
	return v == "no"
}

// noFormer says that terms change and that the former ones do not pass any more.
const noFormer = "none"

// formerTerms reads until when the terms before the last change pass, and what of them
// was different: payTo, and prices by operation.
func (e *environment) formerTerms(now x402.Terms) *service.FormerTerms {
	v := e.list(varFormerTerms)
	if len(v) == 0 || len(v) == 1 && v[0] == noFormer {
		return nil
	}
	f := &service.FormerTerms{Terms: now, Prices: map[string]string{}}
	var err error
	if f.Until, err = time.Parse(time.RFC3339, v[0]); err != nil || len(v) == 1 {
		e.fault(varFormerTerms, "must be %s, or a time such as 2026-11-20T08:05:00Z with what was different behind it, such as payTo=0x… or dns=5000", noFormer)
	}
	for _, part := range v[1:] {
		name, value, _ := strings.Cut(part, "=")
		_, priced := catalog.BySlug(name)
		switch {
		case name == "payTo" && value != "":
			f.Terms.PayTo = e.payee(varFormerTerms, value, now.Asset)
		case priced && atomicUnits(value):
			f.Prices[name] = value
		default:
			e.fault(varFormerTerms, "has %q, which is neither payTo=0x… nor an operation with a price in atomic units, such as dns=5000", part)
		}
	}
	return f
}

// atomicUnits says whether a text is a price in atomic units, without leading zeros.
func atomicUnits(v string) bool {
	n, err := strconv.ParseUint(v, 10, 63)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == v
}

// longestFormer bounds a mistake in FORMER_TERMS: a payee whose time never ends.
const longestFormer = 24 * time.Hour

// checkFormer says whether the former terms end within a day.
func (c Config) checkFormer(now time.Time) error {
	if c.Former != nil && c.Former.Until.After(now.Add(longestFormer)) {
		return errors.New(varFormerTerms + " ends more than a day from now: five minutes after the deployment are enough")
	}
	return nil
}
