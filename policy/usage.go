package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/internal/usage"
)

// Tokens is the unit of a [Usage] that names none.
const Tokens = "tokens"

// Bytes is the unit of rules that count what is sent: the bytes of a response's
// body. Fronts settle it by themselves.
const Bytes = "bytes"

// A Usage says how calls of a language model are paid for. Before the call an
// estimate is charged to the rules that count its unit; afterwards what the
// answer itself says was used replaces it. See [Policy.WithUsage].
type Usage struct {
	// Match says which requests it speaks of; empty means all.
	Match Match
	// Unit is what rules count; [Tokens] if empty.
	Unit string
	// Format is how requests and answers speak, "openai" or "anthropic"; one
	// of one's own is empty, and has Paths.
	Format string
	// Paths lead to the numbers in JSON, names with dots between them, by
	// what stands there: "input", "cached" and "written" (parts of the input
	// that the provider read from a cache or wrote to one), "output" and
	// "reasoning" (a part of the output) in an answer; "most", how many tokens
	// the answer may have, in a request. Several paths are added up.
	Paths map[string][]string
	// Input is the estimate of a request's tokens: "bytes/4", one for each 4
	// bytes of its body, or a number. "bytes/4" if empty.
	Input string
	// Output is the estimate of an answer's tokens: "max_tokens" (what the
	// request allows), "p95" (what 95 of 100 of the last 256 answers did not
	// exceed, once there are 20) or a number, with "else" between them.
	// "max_tokens else p95 else 1000" if empty.
	Output string
	// Weights say how many percent of a unit a token costs, 0 to 10,000, by
	// the words of Paths; 100 for those left out.
	Weights map[string]int
	// Keep charges the estimate for errors too: answers of status 400 and
	// above, but for 504, that say nothing of usage. Otherwise they cost
	// nothing.
	Keep bool
	// Read is how many bytes of a request's body are looked at before the
	// call, at most [MaxRead]; [DefaultRead] if 0.
	Read int64
	// Source says where it is written, "limits.yaml:12", for people.
	Source string
}

// How many bytes of a request's body are read before it is decided, if an
// estimate needs it, and how many may be at most.
const (
	DefaultRead = 1 << 20
	MaxRead     = 64 << 20
)

// What a [Usage] means where it says nothing.
const (
	DefaultInput  = "bytes/4"
	DefaultOutput = "max_tokens else p95 else 1000"
)

// MaxUsage is how many a policy holds at most.
const MaxUsage = 1000

// A UsageError says what is wrong with a [Usage], and where. It wraps
// [ErrRule].
type UsageError struct {
	Index int    // from 0
	Field string // as written in a policy file: "match", "output", ...
	Err   error  // what is wrong and what to do
}

// Error names the place, the field and what to do.
func (e *UsageError) Error() string {
	return fmt.Sprintf("policy: usage %d: %s: %v", e.Index+1, e.Field, e.Err)
}

// Unwrap returns [ErrRule] and the cause.
func (e *UsageError) Unwrap() []error { return []error{ErrRule, e.Err} }

// metered is a Usage made ready.
type metered struct {
	*Usage
	unit  string
	match []condition
	read  int64
	spec  usage.Spec
}

// WithUsage returns the policy of p's rules and these usages in place of its
// own. Of those that match a request, the first for each unit applies. The
// error joins one [*UsageError] for everything that is wrong.
func (p *Policy) WithUsage(list []Usage) (*Policy, error) {
	out := *p
	out.metered, out.usage = nil, append([]Usage(nil), list...)
	var errs []error
	for i := range out.usage {
		u := &out.usage[i]
		bad := func(field string, err error) {
			errs = append(errs, &UsageError{Index: i, Field: field, Err: err})
		}
		if i == MaxUsage {
			bad("match", fmt.Errorf("more than %d usages", MaxUsage))
			break
		}
		u.Match = p.paths.fold(u.Match)
		if err := p.paths.slashed(u.Match); err != nil {
			bad("match", err)
		}
		m := u.compile(bad)
		if m.unit != Requests && m.unit != Bytes && !slices.ContainsFunc(p.plain, func(r Rule) bool { return r.unit() == m.unit && !r.Deny && !r.Exempt }) {
			bad("unit", fmt.Errorf("no rule counts %s, so this would limit nothing; add a rule with unit: %s", m.unit, m.unit))
		}
		out.metered = append(out.metered, m)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &out, nil
}

// UnusedUsage returns for each of p's usages the index of one before it that
// speaks of all its requests, in the same unit, so that it never applies; below
// 0 if there is none.
func (p *Policy) UnusedUsage() []int {
	out, budget := make([]int, len(p.metered)), maxComparisons
	for i := range p.metered {
		out[i] = -1
		for j := 0; j < i && out[i] < 0; j++ {
			if p.metered[j].unit == p.metered[i].unit && covers(p.metered[j].match, p.metered[i].match, &budget) {
				out[i] = j
			}
		}
	}
	return out
}

// Usage returns what [Policy.WithUsage] was given, in order. It must not be
// changed.
func (p *Policy) Usage() []Usage { return p.usage }

func (u *Usage) compile(bad func(field string, err error)) metered {
	m := metered{Usage: u, unit: cmp.Or(u.Unit, Tokens), read: u.Read}
	var err error
	if m.match, err = compileMatch(u.Match); err != nil {
		bad("match", err)
	}
	switch err := checkName(m.unit); {
	case err != nil:
		bad("unit", err)
	case m.unit == Requests || m.unit == Bytes:
		bad("unit", fmt.Errorf("%s are counted by themselves; write another, such as tokens", m.unit))
	}
	m.spec.Format, m.spec.Request = u.format(bad)
	if m.spec.Input, err = usage.ParseInput(cmp.Or(u.Input, DefaultInput)); err != nil {
		bad("input", err)
	}
	if m.spec.Output, err = usage.ParseOutput(cmp.Or(u.Output, DefaultOutput)); err != nil {
		bad("output", err)
	} else if u.Output != "" && m.spec.Output.Asks() && m.spec.Format != nil && m.spec.Request == nil {
		bad("output", errors.New(`max_tokens: the format does not say where it stands in a request; add a path under "most"`))
	}
	w := &m.spec.Weights
	for i, weight := range [...]*int64{usage.Input: &w.Input, usage.Cached: &w.Cached, usage.Written: &w.Written, usage.Output: &w.Output, usage.Reasoning: &w.Reasoning} {
		*weight = 100
		if n, ok := u.Weights[usage.Quantities[i]]; ok {
			*weight = int64(n)
		}
	}
	for _, word := range slices.Sorted(maps.Keys(u.Weights)) {
		if i := slices.Index(usage.Quantities[:], word); i < 0 || i == usage.Most {
			bad("weights", fmt.Errorf("%q: want %s", word, strings.Join(usage.Quantities[:usage.Most], ", ")))
		} else if n := u.Weights[word]; n < 0 || n > 10_000 {
			bad("weights", fmt.Errorf("%s %d%%: must be from 0 to 10000 percent", word, n))
		}
	}
	m.spec.Keep = u.Keep
	switch {
	case m.read == 0:
		m.read = DefaultRead
	case m.read < 0 || m.read > MaxRead:
		bad("read", fmt.Errorf("%d bytes: must be from 1 to %d", m.read, MaxRead))
	}
	return m
}

// format returns how answers and requests speak.
func (u *Usage) format(bad func(field string, err error)) (answer, request *usage.Format) {
	if u.Format != "" {
		answer, request, ok := usage.Named(u.Format)
		switch {
		case !ok:
			bad("format", fmt.Errorf("%q: want %s, or the paths of another", u.Format, strings.Join(usage.Names, " or ")))
		case len(u.Paths) > 0:
			bad("format", fmt.Errorf("%s has its own paths; remove one of them", u.Format))
		}
		return answer, request
	}
	if len(u.Paths) == 0 {
		bad("format", fmt.Errorf("missing: say how requests and answers speak, %s, or the paths of another", strings.Join(usage.Names, " or ")))
		return nil, nil
	}
	paths := make([][]string, len(usage.Quantities))
	for _, word := range slices.Sorted(maps.Keys(u.Paths)) {
		i := slices.Index(usage.Quantities[:], word)
		if i < 0 || len(u.Paths[word]) == 0 {
			bad("format", fmt.Errorf("%q: want paths under %s", word, strings.Join(usage.Quantities[:], ", ")))
			return nil, nil
		}
		paths[i] = u.Paths[word]
	}
	answer, request, err := usage.NewFormat(paths)
	if err != nil {
		bad("format", err)
		return nil, nil
	}
	return answer, request
}
