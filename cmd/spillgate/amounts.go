package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spillgate/spillgate/policy"
)

// amount says how many units there are: 1 request, 5 requests.
func amount(n int64, unit string) string {
	if one, ok := strings.CutSuffix(unit, "s"); ok && n == 1 && one != "" && !strings.HasSuffix(one, "s") {
		unit = one
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// costs says for people what requests cost, where that differs.
func costs(r *policy.Rule) (out []string) {
	for i := range r.Prices {
		p := &r.Prices[i]
		text := amount(p.Units, unit(r))
		if p.From != (policy.Attribute{}) {
			text = fmt.Sprintf("%s %s", p.From, unit(r))
			if p.Per > 1 {
				text = fmt.Sprintf("%s per %d of %s", amount(1, unit(r)), p.Per, p.From)
			}
			text += fmt.Sprintf(", %d without it", max(1, p.Default))
			if p.Most > 0 {
				text += fmt.Sprintf(", at most %d", p.Most)
			}
			if p.From.Kind.Claimed() {
				text += " (the client's word)"
			}
		}
		out = append(out, fmt.Sprintf("costs %s: %s", text, requests(p.Match)))
	}
	if n := len(r.Prices); n > 0 && len(r.Prices[n-1].Match) > 0 {
		out = append(out, fmt.Sprintf("costs %s: the others", amount(1, unit(r))))
	}
	return out
}

// lanes says for people what stays for whom.
func lanes(r *policy.Rule) (out []string) {
	for i := range r.Lanes {
		n := &r.Lanes[i]
		what := "uses all of the limit"
		if kept := n.Kept(r.Limit); kept > 0 {
			what = fmt.Sprintf("leaves %d of %d", kept, r.Limit.Cap())
		}
		whose := requests(n.Match)
		if len(n.Match) == 0 {
			whose = "the others"
		}
		out = append(out, fmt.Sprintf("lane %d %s: %s", i+1, what, whose))
	}
	return out
}

type checkedAmounts struct {
	Costs []checkedCost `json:"costs,omitempty"`
	Lanes []checkedLane `json:"lanes,omitempty"`
}

type checkedCost struct {
	Match   map[string][]string `json:"match"`
	Cost    int64               `json:"cost,omitempty"`
	From    string              `json:"from,omitempty"`
	Per     int64               `json:"per,omitempty"`
	Default int64               `json:"default,omitempty"`
	Most    int64               `json:"most,omitempty"`
}

func costsJSON(r *policy.Rule) (out []checkedCost) {
	for i := range r.Prices {
		p := &r.Prices[i]
		c := checkedCost{Match: conditions(p.Match), Cost: p.Units, Most: p.Most}
		if p.From != (policy.Attribute{}) {
			c.From, c.Per, c.Default = p.From.String(), cmp.Or(p.Per, 1), cmp.Or(p.Default, 1)
		}
		out = append(out, c)
	}
	return out
}

type checkedLane struct {
	Match map[string][]string `json:"match"`
	Keep  int64               `json:"keep"` // units
}

func lanesJSON(r *policy.Rule) (out []checkedLane) {
	for i := range r.Lanes {
		out = append(out, checkedLane{conditions(r.Lanes[i].Match), r.Lanes[i].Kept(r.Limit)})
	}
	return out
}
