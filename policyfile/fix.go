package policyfile

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/policy"
)

// A fix that says "write X" was tried: X is taken in that place. Where no such
// X comes to mind, the fix names the forms that are.

// imperatives begin the part of another package's message that says what to do.
var imperatives = []string{"write ", "use ", "say ", "add ", "name ", "remove ", "known are ", "if that is meant"}

// advice cuts a message in two: what is wrong, and what to do about it. Text
// in quotes is the file's own, and no advice.
func advice(msg string) (wrong, fix string) {
	quoted := false
	for i := 0; i < len(msg); i++ {
		switch {
		case quoted && msg[i] == '\\':
			i++
			continue
		case msg[i] == '"':
			quoted = !quoted
		}
		if quoted {
			continue
		}
		for _, sep := range []string{"; ", ": ", ", so "} {
			rest, ok := strings.CutPrefix(msg[i:], sep)
			for _, word := range imperatives {
				if ok && strings.HasPrefix(rest, word) {
					return msg[:i], rest
				}
			}
		}
	}
	return msg, ""
}

// maxSlip is how long a text may be for a guess at what it means.
const maxSlip = 200

// bare is text that YAML reads as itself, without quotes.
var bare = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/._*-]*$|^[0-9]+\.[0-9.]+\.[0-9./]+$|^[0-9]xx$`)

// written returns a text as it is written in a file.
func written(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null":
		return strconv.Quote(s)
	}
	if bare.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// writeOne returns the fix "write X" for the first of the candidates that is
// good, "" if none is.
func writeOne(good func(string) bool, candidates ...string) string {
	for _, c := range candidates {
		if good(c) {
			return "write " + written(c)
		}
	}
	return ""
}

// writeList returns the fix for several values in one text, "" if it is none.
func writeList(good func(string) bool, s string) string {
	all := strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(", |+;", c) })
	if len(all) < 2 {
		return ""
	}
	for i, one := range all {
		if !good(one) {
			return ""
		}
		all[i] = written(one)
	}
	return "write a list: [" + strings.Join(all, ", ") + "]"
}

// fixName returns the fix for what is no name.
func fixName(s string) string {
	s = s[:min(len(s), maxSlip)]
	return writeOne(func(s string) bool { return probe(func(r *policy.Rule) { r.Name = s }) == nil },
		strings.ToLower(s),
		strings.Trim(regexp.MustCompile(`[^a-z0-9._-]+`).ReplaceAllString(strings.ToLower(s[:min(len(s), 64)]), "-"), "-"),
		"everybody")
}

// codes are those of gRPC.
var codes = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// fixOutcome returns the fix for what is no way in which a request ends.
func fixOutcome(s string) string {
	const forms = "write a status such as 401, a class such as 4xx, a code of gRPC such as UNAUTHENTICATED, or error"
	if len(s) > maxSlip {
		return forms
	}
	good := func(s string) bool { return probe(func(r *policy.Rule) { r.Failures = []string{s} }) == nil }
	if fix := writeList(good, s); fix != "" {
		return strings.ReplaceAll(fix, `"`, "") // a status may be a number
	}
	near := closest(s, append([]string{"error", "4xx", "5xx"}, strings.Fields(strings.ToLower(strings.Join(codes, " ")))...))
	if strings.ToLower(s) == "panic" {
		near = "error"
	}
	fix := writeOne(good, strings.ToLower(s), strings.ToUpper(s), strings.ToLower(s)+"x", near, strings.ToUpper(near))
	if fix == "" {
		fix = forms
	}
	return fix
}

// fixWhole returns the fix for what is no whole number from low to high.
func fixWhole(s string, low, high int64) string {
	s = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(s), "%"))
	if n, err := strconv.ParseInt(s, 0, 64); err == nil && low <= n && n <= high {
		return fmt.Sprintf("write %d", n)
	}
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil && n == 0 || n != n:
		return "write a number in digits alone"
	case n < float64(low):
		return fmt.Sprintf("write %d, the least", low)
	case n >= float64(high):
		return fmt.Sprintf("write %d, the most", high)
	}
	return fmt.Sprintf("write %.0f, without a fraction", math.Ceil(n))
}

// fixValue returns the fix for a value that an attribute never has.
func fixValue(a policy.Attribute, s string) string {
	good := func(s string) bool { return valueError(a, s) == nil }
	text, not := strings.CutPrefix(s[:min(len(s), maxSlip)], "!")
	sign := ""
	if not {
		sign = "!"
	}
	var candidates []string
	switch a.Kind {
	case policy.Method:
		if fix := writeList(good, strings.ToUpper(s)); fix != "" {
			return fix
		}
		if low := strings.ToLower(text); low == "any" || low == "all" {
			return "leave it out: without it, any method fits"
		}
		near := closest(text, []string{"get", "head", "post", "put", "delete", "options", "patch", "connect", "trace"})
		candidates = []string{strings.TrimSpace(strings.ToUpper(text)), strings.ToUpper(near)}
	case policy.Path:
		candidates = likelyPaths(text)
	case policy.Host:
		if fix := writeList(good, s); fix != "" {
			return fix
		}
		candidates = []string{likelyHost(text)}
	case policy.ClientIP:
		if text == "private" {
			return fmt.Sprintf("write a list: [%[1]s10.0.0.0/8%[2]s, %[1]s172.16.0.0/12%[2]s, %[1]s192.168.0.0/16%[2]s, \"%[3]sfc00::/7\"]",
				strings.Repeat(`"`, len(sign))+sign, strings.Repeat(`"`, len(sign)), sign)
		}
		candidates = likelyNetworks(text)
	}
	for i := range candidates {
		candidates[i] = sign + candidates[i]
	}
	if fix := writeOne(good, candidates...); fix != "" {
		return fix
	}
	switch a.Kind {
	case policy.Method:
		return "write a method such as POST"
	case policy.Path:
		return "write a path such as /login, /files/* or /api/**"
	case policy.Host:
		return `write a host such as api.example or "*.api.example"`
	case policy.ClientIP:
		return "write an address or a network, such as 203.0.113.7 or 203.0.113.0/24"
	}
	return ""
}

func likelyPaths(s string) []string {
	if s == "*" || s == "" {
		return []string{"/**"}
	}
	if _, rest, ok := strings.Cut(s, "://"); ok {
		_, path, _ := strings.Cut(rest, "/")
		s = "/" + path
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "^"), "$")
	if i := strings.IndexAny(s, "?#"); i >= 0 {
		s = s[:i]
	}
	if rest, ok := strings.CutSuffix(s, "/.*"); ok {
		s = rest + "/**"
	}
	s, _, _ = strings.Cut(string(policy.AppendPath(nil, "/"+s)), "\x00") // its first reading
	return []string{s, strings.ReplaceAll(s, "**", "*")}
}

func likelyHost(s string) string {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	s, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(s)), "/")
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
		return "[" + a.String() + "]"
	}
	if end := strings.IndexByte(s, ']'); strings.HasPrefix(s, "[") && end > 0 {
		return s[:end+1]
	}
	s, _, _ = strings.Cut(s, ":")
	return strings.TrimRight(s, ".")
}

func likelyNetworks(s string) []string {
	switch s {
	case "loopback", "localhost":
		return []string{"127.0.0.0/8"}
	}
	var out []string
	if p, err := netip.ParsePrefix(s); err == nil {
		out = append(out, p.Masked().String())
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		out = append(out, p.Addr().String())
	}
	if known, ok := strings.CutSuffix(strings.ReplaceAll(s, ".*", ""), "."); ok || known != s {
		if n := strings.Count(known, ".") + 1; n < 4 {
			out = append(out, fmt.Sprintf("%s%s/%d", known, strings.Repeat(".0", 4-n), 8*n))
		}
	}
	return out
}

var asked = regexp.MustCompile(` \(did you mean "([^"]*)"\?\)`)

// attributeError cuts what policy says of a word that is no attribute in two:
// what is wrong, and the fix.
func attributeError(err error, word string) (msg, fix string) {
	msg = plain(err)
	if wrong, fix := advice(msg); strings.HasPrefix(fix, "use ") { // it is one, and no slip
		return wrong, fix
	}
	near := nearAttribute(err, word)
	if near == "" {
		return advice(msg)
	}
	msg, _, _ = strings.Cut(asked.ReplaceAllString(msg, ""), "; known are ")
	return msg, fmt.Sprintf("did you mean %q?", near)
}

// nearAttribute guesses at the attribute that a word stands for of which policy
// says err: with NAME where its name can't be guessed, "" if nothing comes to
// mind.
func nearAttribute(err error, word string) string {
	if m := asked.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	head, name, dotted := strings.Cut(word, ".")
	if name == "" && dotted {
		return head + ".NAME"
	}
	near := closest(word, attributeNames())
	if dotted && (near == "" || strings.HasSuffix(near, ".")) {
		// A slip in the word before the dot, which all that is behind would outweigh.
		if near = closest(head, attributeHeads()); near == "" {
			return ""
		}
		if _, err := policy.ParseAttribute(near + "." + name); err == nil {
			return near + "." + name
		}
	}
	if strings.HasSuffix(near, ".") {
		near += "NAME"
	}
	return near
}

// partWords are the words of a part besides its attributes.
var partWords = []string{"lower", "trim", "secret", "shown", "else"}

// fixPart returns the fix for what is no part of a key, "" if policy says it
// best.
func fixPart(s string) string {
	if len(s) > maxSlip {
		return ""
	}
	good := func(s string) bool { _, err := policy.ParsePart(s); return err == nil }
	if !strings.Contains(s, " else ") {
		if fix := writeList(good, s); fix != "" {
			return fix
		}
	}
	words := strings.Fields(strings.NewReplacer(" or ", " else ", "||", " else ").Replace(s))
	for i, w := range words {
		name, bits, grouped := strings.Cut(w, "/")
		_, err := policy.ParseAttribute(name)
		near := ""
		switch {
		case i > 0 && words[i-1] != "else":
			near = closest(w, partWords)
		case err != nil:
			near = nearAttribute(err, name)
		}
		if near != "" {
			name = near
		}
		if n, err := strconv.Atoi(bits); grouped && err == nil && n < 32 {
			bits = "32"
		} else if grouped && err == nil && n > 128 {
			bits = "128"
		}
		if words[i] = name; grouped {
			words[i] += "/" + bits
		}
	}
	if c := strings.Join(words, " "); !strings.Contains(c, "NAME") && good(c) {
		return "write " + c
	}
	return ""
}
