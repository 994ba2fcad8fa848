package cloudwatch

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// missing is a period without a value.
func missing() float64 { return math.NaN() }

func isMissing(v float64) bool { return math.IsNaN(v) }

// checkStatistic says whether this package knows a statistic.
func checkStatistic(name string) error {
	switch name {
	case "Sum", "Average", "Minimum", "Maximum", "SampleCount":
		return nil
	}
	if p, ok := percentile(name); ok && p > 0 && p <= 100 {
		return nil
	}
	return fmt.Errorf("statistic %q is not known here", name)
}

// percentile reads a name such as p95 or p99.9.
func percentile(name string) (float64, bool) {
	digits, ok := strings.CutPrefix(name, "p")
	if !ok {
		return 0, false
	}
	p, err := strconv.ParseFloat(digits, 64)
	return p, err == nil
}

// statistic is what one period's values come to; missing without any.
func statistic(name string, values []float64) float64 {
	if len(values) == 0 {
		return missing()
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	switch name {
	case "Sum":
		return sum
	case "Average":
		return sum / float64(len(values))
	case "Minimum":
		return slices.Min(values)
	case "Maximum":
		return slices.Max(values)
	case "SampleCount":
		return float64(len(values))
	}
	p, _ := percentile(name)
	return quantile(values, p/100)
}

// quantile interpolates between the two nearest values.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}
