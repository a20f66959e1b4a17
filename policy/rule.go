package policy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate"
)

// A Rule is one line of policy: which requests it speaks of, what tells
// callers apart, and how much each may use.
type Rule struct {
	// Name identifies the rule: in answers and logs, in a snapshot, and across
	// processes that share a store. Lower-case letters, digits, "-", "_" and
	// "."; at most 64.
	Name string
	// Disabled leaves the rule out: it is checked, and applies to nothing. Its
	// counters are kept for when it is back.
	Disabled bool
	// Group is a name that several rules share, to be spoken of together; ""
	// for none.
	Group string
	// Match says which requests are charged; empty means all.
	Match Match
	// Peek says which requests are only told how much is left. A request that
	// meets both is peeked.
	Peek Match
	// Key tells callers apart; empty means that all share one.
	Key []Part
	// Missing says what happens to a request that lacks a part of the key.
	Missing Missing
	// Limit is how much each key may use.
	Limit spillgate.Limit
	// Deny refuses every request that matches. Such a rule has no limit.
	Deny bool
	// Exempt takes requests that match out of the rules of its Group, or,
	// without one, out of all rules that have a limit. See [Verdict.Exempt].
	Exempt bool
	// Unit is what is counted, a word of the form of a name: "requests" if
	// empty. A cost given with [Cost]
	// for a unit is charged to the rules of that unit.
	Unit string
	// Cost is how many units a request costs when nothing else is said; 0
	// means 1.
	Cost int64
	// Prices, if not empty, says instead of Cost what requests cost: the first
	// that matches decides.
	Prices []Price
	// Lanes, if not empty, keep a part of the limit for better requests: the
	// first that matches decides how much stays. The last has no match.
	Lanes []Lane
	// Failures, if not empty, makes only failures count: the charge is given
	// back when the request ends with any other outcome. Outcomes are HTTP
	// statuses ("401", "4xx"), gRPC codes ("UNAUTHENTICATED") or "error".
	Failures []string
	// Spare is the percentage of keys, 0 to 100, that are judged, counted and
	// reported, but never refused: 100 is a shadow rule, and a roll-out goes
	// down from there. A key stays on its side while the rule's name stays.
	Spare int
	// Penalty blocks keys that this rule has refused too often.
	Penalty Penalty
	// Tell asks the front to tell the program behind how much is left.
	Tell bool
	// Hide keeps the rule's numbers from clients: no field tells of it.
	Hide bool
	// Delay holds requests instead of refusing them.
	Delay Delay
	// Backup is where those go whom the rule refuses and prefers; nil is
	// nowhere.
	Backup *Backup
	// Answer is what those are told whom this rule is the first to refuse; nil
	// leaves it to the front.
	Answer *Answer
	// OnFault says what happens when the store can't answer.
	OnFault OnFault
	// FaultAnswer is what those are told whom this rule, under [Shut], is the
	// first to refuse then; nil leaves it to the front. It is no denial, so its
	// status is not 429, and its problem none of a quota; 503 if it names none.
	FaultAnswer *Answer
	// MaxKeys, AtCap and TTL shape the rule's table; see
	// [spillgate.SpaceOptions].
	MaxKeys int
	AtCap   spillgate.AtCap
	TTL     time.Duration
	// Source says where the rule is written, "limits.yaml:12", for people.
	Source string
}

// Missing says what becomes of a request that lacks a part of a rule's key.
type Missing uint8

const (
	// Share puts all such requests into one bucket. It is the default:
	// leaving a value out gains nothing.
	Share Missing = iota
	// Skip does not apply the rule.
	Skip
	// Refuse denies the request.
	Refuse
)

// OnFault says how a rule decides while the store can't answer.
type OnFault uint8

const (
	// Local decides in this process's own memory, at the limit divided by
	// the number of nodes. It is the default.
	Local OnFault = iota
	// Open lets requests pass.
	Open
	// Shut refuses, as unavailable: never as a denial of quota.
	Shut
)

// Requests is the unit of a rule that names none.
const Requests = "requests"

// ErrRule is wrapped by every error about a rule.
var ErrRule = errors.New("bad rule")

// A RuleError says what is wrong with a rule, and where.
type RuleError struct {
	Index int    // of the rule, from 0
	Entry int    // of a list in Field, from 1; 0 if it is none
	Name  string // of the rule
	Field string // as written in a policy file: "limit", "match", ...
	Err   error  // what is wrong and what to do
}

// Error names the rule, the field and what to do.
func (e *RuleError) Error() string {
	if e.Entry > 0 {
		return fmt.Sprintf("policy: rule %q: %s, entry %d: %v", e.Name, e.Field, e.Entry, e.Err)
	}
	return fmt.Sprintf("policy: rule %q: %s: %v", e.Name, e.Field, e.Err)
}

// Unwrap returns [ErrRule] and the cause.
func (e *RuleError) Unwrap() []error { return []error{ErrRule, e.Err} }

// A Policy is a list of rules, compiled. It is immutable and safe for
// concurrent use.
type Policy struct {
	rules []rule
	plain []Rule
	slots slots
	index index

	sameKeys int // that several rules have

	guards     []accompanied
	exemptions []exemption
	off        bool // nobody is refused
	paths      Paths

	usage   []Usage
	metered []metered // usage made ready

	base      *Policy // that the rules were compiled to; copies say more or less
	overrides *Overrides
}

// Rules returns the rules that p was compiled from, in order. They must not
// be changed.
func (p *Policy) Rules() []Rule { return p.plain }

// rule is a Rule made ready.
type rule struct {
	*Rule
	match, peek []condition
	rest        []condition // of match, that who was found by the index is still to be asked for
	backup      []condition
	sameKey     int // the number, from 1, of a key that several rules have; 0 for one that is r's own
	meter       *spillgate.Meter
	prices      []price
	lanes       []lane
	group       int // 0 for none
}

// MaxRules is how many rules a policy holds at most.
const MaxRules = 10_000

// Compile makes rules ready to decide. The error joins one [*RuleError] for
// everything that is wrong.
func Compile(rules []Rule, opts ...CompileOption) (*Policy, error) {
	p := &Policy{plain: append([]Rule(nil), rules...)}
	for _, opt := range opts {
		opt(p)
	}
	p.paths.prepare(p.plain)
	var errs []error
	if len(rules) > MaxRules {
		return nil, fmt.Errorf("policy: %w: %d rules; at most %d", ErrRule, len(rules), MaxRules)
	}
	everywhere := 0
	seen := map[string]int{}
	for i := range p.plain {
		r := &p.plain[i]
		bad := func(field string, err error) {
			errs = append(errs, &RuleError{Index: i, Name: r.Name, Field: field, Err: err})
		}
		if first, dup := seen[r.Name]; dup {
			bad("name", fmt.Errorf("used by rule %d already; a rule is known by its name, so give each its own", first+1))
		}
		seen[r.Name] = i
		if r.Name == everyRule {
			bad("name", errors.New("overrides that name no rule refuse by this name; choose another"))
		}
		if len(r.Match) == 0 && !r.Disabled {
			before := everywhere
			if everywhere += r.charges(); before <= spillgate.MaxCharges && everywhere > spillgate.MaxCharges {
				bad("match", fmt.Errorf("missing, as in rules before that make %d charges: at most %d can apply to one request", before, spillgate.MaxCharges))
			}
		}
		r.Key = slices.Clone(r.Key) // its parts get slots
		c := r.compile(bad)
		p.paths.checkSlashes(r, bad)
		if c.meter != nil && !r.Exempt {
			entries := func(field string) func(int, error) {
				return func(entry int, err error) {
					errs = append(errs, &RuleError{Index: i, Entry: entry, Name: r.Name, Field: field, Err: err})
				}
			}
			c.prices = r.compilePrices(c.meter.Limit().Cap(), entries("cost"))
			c.lanes = r.compileLanes(c.meter.Limit().Cap(), entries("lanes"))
		}
		p.rules = append(p.rules, c)
	}
	p.unusedGroups(func(i int, err error) {
		errs = append(errs, &RuleError{Index: i, Name: p.plain[i].Name, Field: "group", Err: err})
	})
	p.groups()
	p.slots = newSlots(p.rules)
	p.index = newIndex(p.rules)
	p.companions(func(i int, err error) {
		errs = append(errs, &RuleError{Index: i, Name: p.plain[i].Name, Field: "key", Err: err})
	})
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	p.sameKeys = numberKeys(p.rules)
	p.addEveryRule()
	p.base = p
	return p, nil
}

// compile makes r ready, and reports what is wrong through bad.
func (r *Rule) compile(bad func(field string, err error)) rule {
	c := rule{Rule: r}
	if err := checkName(r.Name); err != nil {
		bad("name", err)
	}
	var err error
	if c.match, err = compileMatch(r.Match); err != nil {
		bad("match", err)
	}
	if c.peek, err = compileMatch(r.Peek); err != nil {
		bad("peek", err)
	}
	for _, part := range r.Key {
		if len(part.Attributes) == 0 {
			bad("key", errors.New("a part without attributes"))
		}
	}
	r.unused(bad)
	limit := r.Limit
	if r.Group != "" {
		if err := checkName(r.Group); err != nil {
			bad("group", err)
		}
	}
	switch {
	case r.Exempt:
		r.checkExempt(bad)
		limit = spillgate.Limit{Period: time.Second}
	case r.Deny && limit != (spillgate.Limit{}):
		bad("deny", errors.New("a rule that denies has no limit; remove one of them"))
	case r.Deny:
		limit = spillgate.Limit{Period: time.Second}
	case limit == (spillgate.Limit{}):
		bad("limit", errors.New(`missing; say for example "10/s burst 20", or "deny: true" to refuse all`))
	case limit.Validate() == nil && limit.Cap() == 0:
		bad("limit", fmt.Errorf(`%s admits nothing; if that is meant, say "deny: true" instead`, limit))
		limit = spillgate.Limit{} // so that no cost is held against it
	}
	if limit != (spillgate.Limit{}) {
		if c.meter, err = limit.Meter(); err != nil {
			bad("limit", err)
		}
	}
	if limit.Algorithm == spillgate.Bucket && limit.Rate == 0 && limit.Burst > 0 && r.TTL == 0 {
		bad("ttl", fmt.Errorf("missing: %s never frees by itself; say after how long without a charge a key is forgotten", limit))
	}
	if r.Cost < 0 {
		bad("cost", fmt.Errorf("%d: a cost is never negative", r.Cost))
	} else if c.meter != nil && r.Cost > limit.Cap() && !r.Deny && !r.Exempt {
		bad("cost", fmt.Errorf("%d is more than ever fits at once (%d), so every request would be refused", r.Cost, limit.Cap()))
	}
	if r.Unit != "" {
		if err := checkName(r.Unit); err != nil {
			bad("unit", err)
		}
	}
	if r.Penalty != (Penalty{}) && !r.Exempt {
		r.Penalty.check(r, func(err error) { bad("penalty", err) })
	}
	if r.Spare < 0 || r.Spare > 100 {
		bad("enforce", fmt.Errorf("%d: must be from 0 to 100 percent", 100-r.Spare))
	}
	if r.Missing > Refuse {
		bad("missing", fmt.Errorf("%d: must be Share, Skip or Refuse", r.Missing))
	}
	if r.OnFault > Shut {
		bad("on_fault", fmt.Errorf("%d: must be Local, Open or Shut", r.OnFault))
	}
	if err := r.checkFaultAnswer(); err != nil {
		bad("on_fault", err)
	}
	for _, f := range r.Failures {
		if !validOutcome(f) {
			bad("failures", fmt.Errorf("%q: want HTTP statuses (401, 4xx), codes of gRPC (UNAUTHENTICATED) or error", f))
		}
	}
	if r.Delay != (Delay{}) && !r.Exempt {
		if err := r.Delay.check(r); err != nil {
			bad("delay", err)
		}
	}
	if r.Backup != nil {
		if err := r.Backup.check(); err != nil {
			bad("backup", err)
		}
		if c.backup, err = compileMatch(r.Backup.Match); err != nil {
			bad("backup", err)
		}
	}
	if r.Answer != nil {
		if err := r.Answer.check(); err != nil {
			bad("answer", err)
		}
	}
	if _, err := spillgate.NewSpace(r.Name+".", r.space()); err != nil {
		bad("max_keys", err)
	}
	return c
}

func (r *Rule) space() spillgate.SpaceOptions {
	return spillgate.SpaceOptions{MaxKeys: r.MaxKeys, AtCap: r.AtCap, TTL: r.TTL}
}

// charges returns how many charges r makes of a request.
func (r *Rule) charges() int {
	if r.Penalty != (Penalty{}) {
		return 2
	}
	return 1
}

func (r *Rule) unit() string {
	if r.Unit == "" {
		return Requests
	}
	return r.Unit
}

func checkName(s string) error {
	if s == "" {
		return errors.New("missing; a rule is known by its name in answers and logs")
	}
	if len(s) > 64 {
		return fmt.Errorf("%d characters; at most 64", len(s))
	}
	for _, c := range s {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return fmt.Errorf("%q: use lower-case letters, digits, dashes, underscores and dots", s)
		}
	}
	return nil
}

// validOutcome reports whether f is a status, a class of statuses, a gRPC
// code or "error".
func validOutcome(f string) bool {
	if len(f) == 3 && '1' <= f[0] && f[0] <= '5' {
		return f[1:] == "xx" || isDigit(f[1]) && isDigit(f[2])
	}
	return f == "error" || slices.Contains(codes[:], f)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// failed reports whether outcome is one of the rule's failures.
func (r *Rule) failed(outcome string) bool {
	if outcome == Aborted {
		return true
	}
	for _, f := range r.Failures {
		if f == outcome || len(f) == 3 && f[1:] == "xx" && len(outcome) == 3 && f[0] == outcome[0] {
			return true
		}
	}
	return false
}

// Table returns the options of the rule's space, defaults filled in.
func (r *Rule) Table() spillgate.SpaceOptions {
	o := r.space()
	if o.MaxKeys == 0 {
		o.MaxKeys = spillgate.DefaultMaxKeys
	}
	return o
}
