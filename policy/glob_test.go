package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// A pattern is met by what a regular expression of the same meaning is met by.
func TestGlobsAreWhatTheySay(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func(letters string, n int) string {
		b := []byte{letters[0]}
		for range rnd.IntN(n) {
			b = append(b, letters[rnd.IntN(len(letters))])
		}
		return string(b)
	}
	met := 0
	for range 20_000 {
		kind, written, v := Header, text("ab*", 8), text("ab", 10)
		if rnd.IntN(2) == 0 {
			kind, written, v = Path, text("/a*", 9), text("/ab", 9)
			written = strings.ReplaceAll(written, "**", "*")
			if rnd.IntN(3) == 0 {
				written += "/**"
			}
		}
		p := pattern{text: written, globs: true}
		p.split(kind)
		want := naive{}.glob(kind, written, v)
		if want {
			met++
		}
		if got := meets([]pattern{p}, kind, []byte(v)); got != want {
			t.Fatalf("%v: %q meets %q: %t", kind, v, written, got)
		}
	}
	if met < 2000 {
		t.Errorf("only %d of all met", met)
	}
}

// lookers is a policy of so many rules that look through paths, and a list of as many
// patterns that look through a header.
func lookers(t *testing.T, n int) *Engine {
	var rules []Rule
	for i := range n {
		r := testRule(t, fmt.Sprint("p", i), "1/s")
		r.Match = on(t, "path", fmt.Sprintf("/p*%d/**", i))
		rules = append(rules, r)
	}
	words := testRule(t, "words", "", "client.ip")
	words.Deny, words.Match = true, on(t, "header.user-agent")
	for i := range n {
		words.Match[0].Values = append(words.Match[0].Values, fmt.Sprintf("*word%d*", i))
	}
	return testEngine(t, append(rules, words)...)
}

// However long what a client sends, patterns look through no more of it than 2 MiB for
// each attribute, or 1 KiB for each pattern.
func TestWhatPatternsLookThroughIsBounded(t *testing.T) {
	for _, n := range []int{1, 100, 600, 9_999} {
		e := lookers(t, n)
		most := max(mostLooked, n*freeLength)
		reached := false
		for length := 1; length <= 1<<16; length *= 2 {
			for _, field := range []string{"path", "header.user-agent"} {
				attrs := Attrs{"client.ip": "192.0.2.1", "path": "/", "header.user-agent": "x"}
				attrs[field] = "/p" + strings.Repeat("a", length-1)
				s := e.scratch.New().(*scratch)
				s.begin(attrs, e.policy.slots)
				looked := 0
				for c := range conditionsOf(e.policy.rules) {
					if v, ok := s.read(c.slot); ok && !c.tooLong(&s.request, len(v)) {
						looked += len(v) * c.looking
					}
				}
				if looked > most+n*len("/")+n {
					t.Errorf("%d patterns, %s of %d: %d octets", n, field, length, looked)
				}
				reached = reached || looked > most/2
			}
		}
		if !reached && n > 32 {
			t.Errorf("%d patterns: the bound is never reached", n)
		}
	}
}

// A value that is too long to be looked through is taken for any: no rule is gone
// around with it, no exemption had, and whoever sends it is told.
func TestAValueTooLongToBeLookedThroughIsAny(t *testing.T) {
	long := strings.Repeat("a", 1<<16)
	ask := func(e *Engine, attrs Attrs) (allowed bool, err error) {
		attrs["client.ip"] = "192.0.2.1"
		v := e.Decide(context.Background(), attrs)
		return v.Allowed, v.Err()
	}
	var odd *OddError
	many := lookers(t, 600)
	if ok, err := ask(many, Attrs{"path": "/p" + long}); ok || !errors.As(err, &odd) {
		t.Errorf("a long path: %v", err)
	}
	if ok, err := ask(many, Attrs{"path": "/x", "header.user-agent": long}); ok || errors.As(err, &odd) {
		t.Errorf("a long header: %v", err)
	}
	for _, attrs := range []Attrs{{"path": "/p" + long[:1000]}, {"path": "/x", "header.user-agent": long[:3000]}} {
		if ok, err := ask(many, attrs); !ok {
			t.Errorf("what is not too long: %v", err)
		}
	}
	if ok, err := ask(lookers(t, 30), Attrs{"path": "/x", "header.user-agent": long}); !ok {
		t.Errorf("few patterns: %v", err)
	}

	// Of an exemption, of a peek, and of what must not be.
	words := func(prefix string) Match {
		m := on(t, "header.user-agent")
		for i := range 600 {
			m[0].Values = append(m[0].Values, fmt.Sprintf("%s*word%d*", prefix, i))
		}
		return m
	}
	free, peek, not := testRule(t, "free", ""), testRule(t, "peek", "1/h burst 1", "client.ip"), testRule(t, "not", "1/h burst 1", "client.ip")
	free.Limit.Algorithm, free.Exempt, free.Match = 0, true, append(words(""), on(t, "client.ip", "192.0.2.0/24")...)
	peek.Peek, not.Match = words(""), words("!")
	for name, rules := range map[string][]Rule{
		"exempt": {free, testRule(t, "all", "1/h burst 1", "client.ip")},
		"peek":   {peek},
		"not":    {not},
	} {
		e := testEngine(t, rules...)
		agent := long
		if name != "not" {
			agent += "word7"
		}
		for _, want := range []bool{true, false} {
			if ok, _ := ask(e, Attrs{"header.user-agent": agent}); ok != want {
				t.Errorf("%s: passes: %t, want %t", name, ok, want)
			}
		}
	}
}
