package httplimit

import "regexp"

// list is a line of RateLimit or RateLimit-Policy: a List (RFC 9651, 3.1) whose
// members are Strings, with parameters.
var list = func() *regexp.Regexp {
	const (
		text = `"(?:[ !#-\[\]-~]|\\["\\])*"`
		bare = text + `|-?[0-9]{1,12}\.[0-9]{1,3}|@?-?[0-9]{1,15}|[A-Za-z*][!#$%&'*+.^_` + "`" + `|~:/0-9A-Za-z-]*|:[A-Za-z0-9+/=]*:|\?[01]`
		item = text + `(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` + bare + `))?)*`
	)
	return regexp.MustCompile(`^ *` + item + `(?:[ \t]*,[ \t]*` + item + `)* *$`)
}()

// Join returns the lines of RateLimit or RateLimit-Policy in an answer that two
// tell of limits in: ours, and behind them those of theirs that are Lists of
// names, as in the draft that [Draft] names. What stands in one field is read as
// one List, so a line of an earlier draft (limit=100, remaining=0, reset=60) would
// make all of it unreadable; it is left out.
func Join(ours, theirs []string) []string {
	all := ours[:len(ours):len(ours)]
	for _, line := range theirs {
		if list.MatchString(line) {
			all = append(all, line)
		}
	}
	return all
}
