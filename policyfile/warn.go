package policyfile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
	"go.yaml.in/yaml/v4"
)

// A Warning is what a file says and can hardly mean. The file is carried out as
// it stands.
type Warning struct {
	// Code names the kind of warning, for programs: those of
	// [policy.Warning], those of overrides ("expired", "claimed-exempt"),
	// those of the server part ("any-proxy", "loop", "near-header",
	// "nobody-trusted"), "failures" and "untold-tokens".
	Code string
	// Error is the place, what is odd and why, and what to write instead.
	Error
}

// WarningCodes are the codes that a [Warning] may have.
func WarningCodes() []string {
	return []string{
		"any-proxy", "asked-key", "burst", "claimed-cost", "claimed-exempt", "claimed-lane", "claimed-match", "claimed-peek", "expired", "failures", "forgets",
		"loop", "near-header", "nobody-trusted", "open-backup", "path-key", "penalty-key", "repeated", "unlooked", "unreachable", "untold-tokens", "user-agent",
	}
}

// warnings returns what is odd about a file without errors.
func (d *decoder) warnings(root *yaml.Node, doc *document, f *File) (out []Warning) {
	add := func(code string, at *yaml.Node, msg, fix string) {
		out = append(out, Warning{code, *d.src.errorAt(at.Line, at.Column, msg, fix)})
	}
	if slices.Contains(f.Server.ClientIP.Trusted, clientip.Any) {
		at := under(under(under(root, "server"), "client_ip"), "trusted")
		for i := range f.Server.ClientIP.Trusted {
			if f.Server.ClientIP.Trusted[i] == clientip.Any {
				at = entry(at, i)
				break
			}
		}
		add("any-proxy", at, `client_ip trusts "any": whoever reaches this server past its proxies can claim to be any client, and so has no limit by client.ip`,
			"name the proxies' own networks, if somebody can")
	}
	f.serverWarnings(root, doc, add)
	for _, w := range f.Policy.Warnings() {
		m := &doc.places[w.Index]
		at := m.at(w.Field, "name")
		if w.Entry > 0 {
			at = entry(at, w.Entry-1)
		}
		if a, err := policy.ParseAttribute(w.Attribute); err == nil {
			at = condition(under(at, "match"), a)
		}
		add(w.Code, target(at), w.Field+": "+w.Text, w.Fix)
	}
	for i := range doc.rules {
		if r := &doc.rules[i]; f.ForGateway && !r.Disabled && len(r.Failures) == 1 && r.Failures[0] == "error" {
			add("failures", target(doc.places[i].at("failures")), "failures: the gateway answers its own faults with a status, so no request ends in error, and the rule counts only those whose client goes away",
				"name statuses, such as 401")
		}
	}
	for i := range doc.rules {
		r := &doc.rules[i]
		counts := func(u policy.Usage) bool { return cmp.Or(u.Unit, policy.Tokens) == r.Unit }
		if f.ForGateway && !r.Disabled && r.Unit == policy.Tokens && r.Cost <= 1 && len(r.Prices) == 0 && !slices.ContainsFunc(f.Policy.Usage(), counts) {
			add("untold-tokens", target(doc.places[i].at("unit")), "unit: the rule counts tokens, but no usage says how many a call has: each request costs 1",
				"add usage at the top of the file, or a cost")
		}
	}
	for i, before := range f.Policy.UnusedUsage() {
		if before >= 0 {
			add("unreachable", target(doc.usagePlaces[i].at("match", "format")), fmt.Sprintf("usage: the first that matches decides, and the one in line %d matches all that this one does, so this one is never used", target(doc.usagePlaces[before].node).Line),
				"write the narrower one first, or remove one of them")
		}
	}
	doc.overrideWarnings(time.Now(), add)
	slices.SortStableFunc(out, func(a, b Warning) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return out
}
