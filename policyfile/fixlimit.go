package policyfile

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
)

// unitWord returns the unit of time that a word stands for: as limits write
// it, or "month" or "year".
func unitWord(s string) string {
	switch strings.ToLower(s) {
	case "ns", "nanosecond", "nanoseconds":
		return "ns"
	case "us", "µs", "microsecond", "microseconds":
		return "us"
	case "ms", "msec", "millisecond", "milliseconds":
		return "ms"
	case "s", "sec", "secs", "second", "seconds":
		return "s"
	case "m", "min", "mins", "minute", "minutes":
		return "min"
	case "h", "hr", "hrs", "hour", "hours":
		return "h"
	case "d", "day", "days":
		return "d"
	case "w", "wk", "week", "weeks":
		return "w"
	case "mo", "mon", "month", "months":
		return "month"
	case "y", "yr", "year", "years":
		return "year"
	}
	return ""
}

var units = []struct {
	word string
	size time.Duration
}{
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1},
}

// FormatPeriod writes a time above 0 as a file does: a whole number and the
// largest unit up to a day that divides it, such as 3d or 90m.
func FormatPeriod(d time.Duration) string {
	for _, u := range units {
		if d%u.size == 0 {
			return fmt.Sprintf("%d%s", d/u.size, u.word)
		}
	}
	return ""
}

var spokenPart = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)?\s*([A-Za-zµ]+)[\s,]*(?:and\s+)?`)

// maxPeriod is the longest that a limit's period and a ttl may be.
const maxPeriod = 366 * 24 * time.Hour

// spoken reads a time as people write it: "1h30m", "1.5 hours", "90 sec",
// "month". It is 0 if it can't, or above 366 days.
func spoken(s string) time.Duration {
	var sum float64
	for s = strings.TrimSpace(s); s != ""; {
		m := spokenPart.FindStringSubmatch(s)
		if m == nil {
			return 0
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if m[1] == "" {
			n, err = 1, nil
		}
		var size time.Duration
		switch w := unitWord(m[2]); w {
		case "":
			return 0
		case "month":
			size = 30 * 24 * time.Hour
		case "year":
			size = 365 * 24 * time.Hour
		default:
			l, lerr := spillgate.ParseLimit("1/" + w)
			if size = l.Period; lerr != nil {
				return 0
			}
		}
		sum += n * float64(size)
		if err != nil || sum > float64(maxPeriod) {
			return 0
		}
		s = s[len(m[0]):]
	}
	return time.Duration(math.Round(sum))
}

// A span of times is what a duration may be.
type timeSpan struct {
	least, most time.Duration
	example     string
	other       string // what else can be done than to write one
}

// write returns the fix for a time that is meant.
func (r timeSpan) write(d time.Duration) string {
	switch {
	case d < r.least:
		return fmt.Sprintf("write %s, the least", FormatPeriod(r.least))
	case d > r.most:
		return fmt.Sprintf("write %s, the most", FormatPeriod(r.most))
	}
	return "write " + FormatPeriod(d)
}

// fix returns the fix for what is no duration in r.
func (r timeSpan) fix(s string) string {
	forms := "write a time such as " + r.example + r.other
	if len(s) > maxSlip {
		return forms
	}
	s = strings.TrimPrefix(s, "calendar ")
	if n, err := strconv.ParseInt(s, 10, 64); decimal.MatchString(s) && n > 0 {
		var good []string
		for _, unit := range []string{"ms", "s", "m", "h"} {
			l, lerr := spillgate.ParseLimit("1/" + s + unit)
			if err == nil && lerr == nil && r.least <= l.Period && l.Period <= r.most && (unit != "ms" || r.most < time.Hour) {
				good = append(good, s+unit)
			}
		}
		switch n := len(good); n {
		case 0:
			return forms
		case 1:
			return "name the unit: " + good[0]
		default:
			return fmt.Sprintf("name the unit: %s or %s", strings.Join(good[:n-1], ", "), good[n-1])
		}
	}
	if d := spoken(s); d > 0 {
		return r.write(d)
	}
	if d := spoken(strings.SplitN(s, " burst", 2)[0]); d > 0 {
		return r.write(d)
	}
	if m := spokenPart.FindStringSubmatch(s); m != nil && len(m[0]) == len(s) && unitWord(m[2]) != "" && strings.Trim(m[1], "0.") != "" {
		return r.write(math.MaxInt64)
	}
	return forms
}

var (
	rateText  = regexp.MustCompile(`^([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([a-z]*)\s*(?:/|\bper\b|\ban?\b|\beach\b|\bevery\b|\bin\b)\s*(calendar\s+)?((?:[0-9]+(?:\.[0-9]+)?\s*)?[a-zµ]+(?:[0-9]+[a-zµ]+)*)(.*)$`)
	rateShort = regexp.MustCompile(`^([0-9][0-9_]*)\s*[rq]p([smhd])\b`)
	slotsText = regexp.MustCompile(`^([0-9][0-9_]*)\s*(?:concurrent|parallel|simultaneous|in parallel|in flight|at a time|at the same time|connections?|slots?)\b.*$`)
	zoneText  = regexp.MustCompile(`^([0-9][0-9_]*/calendar [a-z]+) (?:in )?([A-Za-z_]+(?: [A-Za-z]+)?)$`)
)

// fixLimitForms begins the fix for a limit where no better one comes to mind.
const fixLimitForms = "write a limit in one of the forms "

// fixLimit returns the fix for what is no limit.
func fixLimit(s string) string {
	good := func(s string) bool {
		l, err := spillgate.ParseLimit(s)
		return err == nil && l.Cap() > 0
	}
	const forms = fixLimitForms + "10/s, 10/s burst 20, 1/10s, 100/calendar month, 100/min sliding, 20 at once"
	if len(s) > maxSlip {
		return forms
	}
	low := strings.ToLower(strings.TrimSpace(s))
	switch low {
	case "none", "no", "off", "inf", "infinite", "infinity", "no limit", "unlimited":
		return "write unlimited"
	}
	if strings.HasPrefix(low, "0") && rateText.MatchString(low) && strings.Trim(strings.SplitN(low, "/", 2)[0], "0") == "" {
		return `write a burst that can be spent once, such as "0/s burst 10", and a ttl; or "deny: true" in place of the limit`
	}
	low = rateShort.ReplaceAllString(low, "$1/$2")
	if m := slotsText.FindStringSubmatch(low); m != nil && good(m[1]+" at once") {
		return "write " + m[1] + " at once"
	}
	if m := rateText.FindStringSubmatch(low); m != nil {
		if c := rate(m[1], m[3] != "", m[4]) + clauses(m[5]); good(c) {
			return "write " + c
		}
	}
	if m := zoneText.FindStringSubmatch(strings.TrimSpace(s)); m != nil {
		if c := zone(m[2]); c != "" && good(m[1]+" in "+c) {
			return "write " + m[1] + " in " + c
		}
	}
	if c := respelt(s); good(c) {
		return "write " + c
	} else if c != s {
		return fixLimit(c)
	}
	return forms
}

// limitWords are the words of limits, but for names of time zones.
var limitWords = []string{"second", "minute", "hour", "day", "week", "month", "calendar", "at", "once", "for", "burst", "queue", "fixed", "sliding", "log", "fill", "per", "unlimited"}

var letters = regexp.MustCompile(`[a-z]+`)

// respelt returns a limit with words that are known in place of those that are
// nearly. What it returns it returns again.
func respelt(s string) string {
	head, zone, zoned := strings.Cut(s, " in ")
	head = letters.ReplaceAllStringFunc(strings.ToLower(head), func(w string) string {
		if near := closest(w, limitWords); near != "" && unitWord(w) == "" {
			return near
		}
		return w
	})
	if zoned {
		head += " in " + zone
	}
	return head
}

// rate returns n units in a period in the grammar of limits: a fraction of a
// unit is one unit in a longer period. It is "" if it can't be.
func rate(n string, calendar bool, period string) string {
	n = strings.NewReplacer(",", "", "_", "").Replace(n)
	unit := unitWord(strings.TrimSuffix(period, "s"))
	if unit == "" {
		unit = unitWord(period)
	}
	if name := map[string]string{"min": "minute", "h": "hour", "d": "day", "w": "week", "month": "month"}[unit]; name != "" && (calendar || unit == "month") {
		return n + "/calendar " + name
	}
	d := spoken(period)
	if d == 0 || calendar {
		return ""
	}
	whole, fraction, _ := strings.Cut(n, ".")
	if fraction = strings.TrimRight(fraction, "0"); len(fraction) > 6 {
		return ""
	}
	num, err := strconv.ParseInt(whole+fraction, 10, 64)
	if err != nil || num < 1 {
		return ""
	}
	den := int64(math.Pow10(len(fraction)))
	for a, b := num, den; ; a, b = b, a%b {
		if b == 0 {
			num, den = num/a, den/a
			break
		}
	}
	if d > maxPeriod/time.Duration(den) {
		return ""
	}
	l := spillgate.Limit{Rate: num, Period: d * time.Duration(den), Burst: 1}
	return strings.TrimSuffix(l.String(), " burst 1")
}

// clauses returns what follows a rate, its words put right.
func clauses(s string) string {
	var b strings.Builder
	for _, w := range strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(" ,;:=()", c) }) {
		if w[0] < '0' || w[0] > '9' {
			if near := closest(w, []string{"burst", "queue", "fixed", "sliding", "log", "fill"}); near != "" {
				w = near
			}
		}
		b.WriteString(" " + w)
	}
	return b.String()
}

// zone guesses at the IANA name of a city's zone, "" if nothing comes to mind.
func zone(city string) string {
	city = strings.ReplaceAll(city, " ", "_")
	for _, area := range []string{"Europe/", "America/", "Asia/", "Africa/", "Australia/", "Pacific/", "Atlantic/"} {
		if _, err := time.LoadLocation(area + city); err == nil {
			return area + city
		}
	}
	return ""
}
