package main

import (
	"fmt"

	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// checkedLocal says by which limit one of so many gateways decides for a rule while the
// store is away.
type checkedLocal struct {
	Rule  string `json:"rule"`
	Nodes int    `json:"nodes"`
	Limit string `json:"limit"`
}

// localNodes are the numbers of gateways to say that of: examples, where they count each
// other.
func localNodes(s *policyfile.Store) []int {
	if s.Nodes == 0 {
		return []int{2, 10}
	}
	return []int{s.Nodes}
}

// locals returns that of each rule that decides locally then, for each number.
func locals(f *policyfile.File) (all []checkedLocal) {
	for _, r := range f.Policy.Rules() {
		if r.Deny || r.Exempt || r.OnFault != policy.Local || !f.Server.Store.Shared() {
			continue
		}
		for _, n := range localNodes(&f.Server.Store) {
			if part, ok := policy.LocalLimit(r.Limit, n); ok {
				all = append(all, checkedLocal{r.Name, n, part.String()})
			}
		}
	}
	return all
}

// localText says so for people.
func localText(f *policyfile.File) (lines []string) {
	rule := ""
	for _, l := range locals(f) {
		if lines == nil {
			of, more := fmt.Sprintf(" of %d", l.Nodes), ""
			if f.Server.Store.Nodes == 0 {
				of, more = "", "; each has its part, of 2 and of 10 gateways for example"
			}
			lines = append(lines, fmt.Sprintf("while the store is away each gateway%s decides in its own memory; only there keys have the bound under KEYS%s:", of, more))
		}
		if l.Rule == rule {
			lines[len(lines)-1] += ", " + l.Limit
			continue
		}
		rule = l.Rule
		lines = append(lines, fmt.Sprintf("  %s by %s", l.Rule, l.Limit))
	}
	return lines
}
