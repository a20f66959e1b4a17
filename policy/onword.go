package policy

import (
	"fmt"
	"slices"
	"strings"
)

// chosen reports whether it is the client alone who decides if it meets c: by
// what it claims, or by what it asks for where a server may serve the same
// whatever that is. With another path, or a method that is named, it gets
// something else.
func (c *Condition) chosen() bool {
	k := c.Attribute.Kind
	return k.loose() && k != Path && (k != Method || !c.literal())
}

// onWord returns a condition's attribute that the client chooses, where m has
// such a condition and none that names who the client is: then who meets m is
// whoever wants to. One that it claims goes before one that it asks for.
func (m Match) onWord() (chosen Attribute, ok bool) {
	if m.proven() {
		return Attribute{}, false
	}
	for i := range m {
		if c := &m[i]; c.chosen() && !chosen.Kind.Claimed() {
			chosen, ok = c.Attribute, true
		}
	}
	return chosen, ok
}

// proven reports whether m names who the client is, by what it can't choose.
func (m Match) proven() bool {
	return slices.ContainsFunc(m, func(c Condition) bool {
		return c.Attribute.Kind.proven() && slices.ContainsFunc(c.Values, func(v string) bool { return !strings.HasPrefix(v, "!") })
	})
}

// proven reports whether a client can't choose the value.
func (k Kind) proven() bool {
	switch k {
	case ClientIP, TLSClient, User, Tenant, Device, Claim, Own, Proxy:
		return true
	}
	return false
}

// OnWord returns an attribute that the client chooses, where o is for whoever
// says the right one: nothing else says who that is.
func (o *Override) OnWord() (chosen Attribute, ok bool) {
	m := o.Match
	if o.List != "" {
		key := Attribute{Kind: ClientIP}
		if len(o.Key.Attributes) > 0 {
			key = o.Key.Attributes[0]
		}
		m = append(Match{{key, []string{"*"}}}, m...) // some entry
	}
	return m.onWord()
}

// Ways out of what the client chooses.
const (
	proven    = "what is proven: client.ip, tls.client, what a proxy of yours sets (proxy.NAME) or, in a Go program, what that says"
	askProven = "ask for " + proven
	addProven = "add a condition that it can't choose, such as client.ip"
)

// onWord warns of whatever frees callers by what they choose to say.
func (w *warner) onWord() {
	r := w.r
	if claimed, ok := r.Match.onWord(); ok && r.Exempt {
		w.warnOf(claimed, "claimed-exempt", "match", addProven, "the client chooses its %s, so whoever says the right one is exempt, if the server behind takes it", claimed)
	}
	if !r.Exempt && r.refuses() {
		w.matched()
	}
	alike := func(c Condition) bool { // what is charged asks for it too, so it frees nobody
		return slices.ContainsFunc(r.Match, func(d Condition) bool { return d.Attribute == c.Attribute && slices.Equal(d.Values, c.Values) })
	}
	if claimed, ok := slices.DeleteFunc(slices.Clone(r.Peek), alike).onWord(); ok && !r.Peek.proven() {
		w.warnOf(claimed, "claimed-peek", "peek", askProven, "the client chooses its %s, so whoever says the right one is told what is left, and charged nothing", claimed)
	}
	if lane, claimed, ok := r.LaneOnWord(); ok {
		w.warnOf(claimed, "claimed-lane", "lanes", askProven, "the client chooses its %s, so whoever wants to takes what is kept for others", claimed)
		w.out[len(w.out)-1].Entry = lane
	}
	for i := range r.Prices {
		if claimed, ok := r.Prices[i].Match.onWord(); ok && r.cheaper(i) {
			w.warnOf(claimed, "claimed-cost", "cost", askProven, "the client chooses its %s, so whoever says the right one pays less", claimed)
			w.out[len(w.out)-1].Entry = i + 1
		}
	}
}

// matched warns of a rule that goes by what the client claims, where without
// that claim nothing limits the same requests.
func (w *warner) matched() {
	loose := func(c Condition) bool { return c.Attribute.Kind.Claimed() || c.Attribute.Kind == ContentLength }
	at := slices.IndexFunc(w.r.Match, loose)
	if at < 0 || w.bounded(slices.DeleteFunc(slices.Clone(w.r.Match), loose), Kind.loose) {
		return
	}
	w.warnOf(w.r.Match[at].Attribute, "claimed-match", "match", fmt.Sprintf("add a rule keyed by client.ip for the same requests that does not ask for %s", w.r.Match[at].Attribute),
		"the client chooses its %s, so whoever says something else, or nothing, is not charged, and no other rule limits it", w.r.Match[at].Attribute)
}

// cheaper reports whether a request can pay less by meeting the i-th price, or,
// where that asks what must not be said, by saying it.
func (r *Rule) cheaper(i int) bool {
	units := func(p *Price) int64 { return max(1, p.Units) }
	own, least, greatest, rest := units(&r.Prices[i]), int64(1), int64(1), false
	for j := i + 1; j < len(r.Prices) && !rest; j++ {
		p := &r.Prices[j]
		rest = len(p.Match) == 0
		if least = min(least, units(p)); rest && j == i+1 {
			least = units(p)
		}
		greatest = max(greatest, units(p), p.Default)
	}
	unless := slices.ContainsFunc(r.Prices[i].Match, func(c Condition) bool {
		return c.chosen() && !slices.ContainsFunc(c.Values, func(v string) bool { return !strings.HasPrefix(v, "!") })
	})
	return own < greatest || unless && own > least
}

// backup warns of backups that anybody reaches: by its word, or at any rate.
func (w *warner) backup() {
	b := w.r.Backup
	if b == nil || b.Match.proven() {
		return
	}
	if claimed, ok := b.Match.onWord(); ok {
		w.warnOf(claimed, "open-backup", "backup", askProven, "the client chooses its %s, so whoever says the right one goes to the backup", claimed)
		return
	}
	limited := false
	w.near.each(w.at, func(i int) bool {
		o := &w.p.rules[i]
		limited = !o.Exempt && o.refuses() && o.byAddress() && o.Match.covers(w.r.Match, &w.budget) && w.p.lacks(i, w.at, &w.budget) == ""
		return limited || w.budget < 0
	})
	if !limited && w.budget >= 0 {
		w.warn("open-backup", "backup", "add a rule keyed by client.ip, without a backup, that limits the same requests and is wide enough for both",
			"the rule sends everybody to its backup, without a limit")
	}
}
