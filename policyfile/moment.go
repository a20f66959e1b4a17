package policyfile

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

const spanPattern = `([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|min|m|h|d|w))+`

var (
	spanText = regexp.MustCompile(`^` + spanPattern + `$`)
	spanPart = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|min|m|h|d|w)`)
)

// parseSpan reads a time such as 0s, 90m, 1h30m, 1.5s or 7d.
func parseSpan(s string) (sum time.Duration, ok bool) {
	if len(s) > maxSlip || !spanText.MatchString(s) {
		return 0, false
	}
	for _, m := range spanPart.FindAllStringSubmatch(s, -1) {
		unit, fold := m[2], int64(1)
		switch unit {
		case "min":
			unit = "m"
		case "d":
			unit, fold = "h", 24
		case "w":
			unit, fold = "h", 24*7
		}
		d, err := time.ParseDuration(m[1] + unit)
		if err != nil || int64(d) > math.MaxInt64/fold || int64(sum) > math.MaxInt64-int64(d)*fold {
			return 0, false
		}
		sum += d * time.Duration(fold)
	}
	return sum, sum <= maxSpan
}

// elapsed writes a time as [parseSpan] reads it, or never.
func elapsed(d time.Duration) string {
	switch {
	case d == spillgate.Never:
		return "never"
	case d == 0:
		return "0s"
	case d < 0:
		return "-" + elapsed(-d)
	}
	if one := FormatPeriod(d); len(one) <= 5 {
		return one
	}
	var b strings.Builder
	if days := d / (24 * time.Hour); days > 0 {
		fmt.Fprintf(&b, "%dd", days)
		d %= 24 * time.Hour
	}
	s := d.String() // "1h30m0s", "1m0.5s"
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		s = short + "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	if d > 0 {
		b.WriteString(s)
	}
	return b.String()
}

const spanWant = "a time such as 10s, 1h30m or 7d"

// span is a length of time, 0 or more.
var span = kind[time.Duration]{
	schema: schema{"type": "string", "pattern": "^" + spanPattern + "$", "examples": []string{"0s", "10s", "1h30m", "7d"}},
	read: func(d *decoder, n *yaml.Node) (time.Duration, bool) {
		n, ok := d.scalar(n, spanWant)
		if !ok {
			return 0, false
		}
		if v, ok := parseSpan(n.Value); ok && n.ShortTag() == "!!str" {
			return v, true
		}
		d.wrong(n, spanWant, fixSpan(n.Value))
		return 0, false
	},
}

func fixSpan(s string) string {
	if len(s) > maxSlip {
		return "write a whole number and a unit, such as 10s"
	}
	for _, c := range []string{s + "s", strings.ReplaceAll(strings.ToLower(s), " ", ""), strings.TrimPrefix(s, "-")} {
		if _, ok := parseSpan(c); ok {
			return "write " + c
		}
	}
	if d := spoken(s); d > 0 {
		return "write " + elapsed(d)
	}
	return "write a whole number and a unit, such as 10s"
}

const instantWant = "an instant such as 2026-03-29T03:00:00+02:00"

// instant is a time of the world, in the form of RFC 3339.
var instant = kind[time.Time]{
	schema: schema{"type": "string", "format": "date-time", "pattern": instantPattern, "examples": []string{"2026-03-29T03:00:00+02:00"}},
	read: func(d *decoder, n *yaml.Node) (time.Time, bool) {
		n, ok := d.scalar(n, instantWant)
		if !ok {
			return time.Time{}, false
		}
		if t, ok := parseInstant(n.Value); ok {
			return t, true
		}
		d.wrong(n, instantWant, "write date, time and offset: 2026-03-29T03:00:00+02:00, or Z for UTC")
		return time.Time{}, false
	},
}

const instantPattern = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`

var instantText = regexp.MustCompile(instantPattern)

// parseInstant reads an instant between the years 1970 and 2200: within what
// counts in nanoseconds, and with room for a test to go on.
func parseInstant(s string) (time.Time, bool) {
	if !instantText.MatchString(s) {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t, err == nil && t.Year() >= 1970 && t.Year() < 2200 && t.Unix() >= 0
}

// moments is a time since the start of a test, or an instant.
var moments = kind[moment]{
	schema: schema{"anyOf": []any{span.schema, instant.schema}},
	read: func(d *decoder, n *yaml.Node) (moment, bool) {
		v, ok := d.scalar(n, spanWant+", or "+instantWant)
		if !ok {
			return moment{}, false
		}
		if t, ok := parseInstant(v.Value); ok {
			return moment{node: n, clock: t}, true
		}
		if after, ok := parseSpan(v.Value); ok {
			return moment{node: n, after: after}, true
		}
		d.wrong(v, spanWant+", or "+instantWant, fixSpan(v.Value))
		return moment{}, false
	},
}

// ending is how one request ends.
var ending = kind[string]{
	schema: schema{"anyOf": []any{
		schema{"type": "integer", "minimum": 100, "maximum": 599},
		schema{"type": "string", "pattern": `^[1-5][0-9][0-9]$`},
		schema{"enum": append([]string{"error", policy.Aborted}, codes...)},
	}},
	read: func(d *decoder, n *yaml.Node) (string, bool) {
		const want = "how a request ends: a status such as 401, a gRPC code, error or aborted"
		n, ok := d.scalar(n, want)
		if !ok {
			return "", false
		}
		if n.Value == policy.Aborted || !strings.HasSuffix(n.Value, "xx") && probe(func(r *policy.Rule) { r.Failures = []string{n.Value} }) == nil {
			return n.Value, true
		}
		fix := "write a status such as 200 or 401, a code of gRPC such as UNAUTHENTICATED, error, or aborted"
		if w := closest(n.Value, []string{"error", policy.Aborted}); w != "" {
			fix = "write " + w
		}
		d.wrong(n, want, fix)
		return "", false
	},
}

// amounts is a mapping of units to numbers.
func amounts(least int64) kind[map[string]int64] {
	number := whole(least, 1<<62)
	return kind[map[string]int64]{
		schema: schema{"type": "object", "minProperties": 1, "propertyNames": schema{"pattern": ruleNamePattern}, "additionalProperties": number.schema},
		read: func(d *decoder, n *yaml.Node) (map[string]int64, bool) {
			if v := target(n); v.Kind == yaml.ScalarNode && decimal.MatchString(v.Value) {
				d.wrong(v, "an amount by unit", fmt.Sprintf("write {%s: %s}", policy.Requests, v.Value))
				return nil, false
			}
			out := make(map[string]int64)
			good := true
			ok, _ := d.pairs(n, "amounts by unit", "{tokens: 500}", func(key, value *yaml.Node) {
				v, ok := number.read(d, value)
				out[key.Value], good = v, good && ok
			})
			return out, ok && good
		},
	}
}
