package main

import (
	"fmt"

	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// checkedLocal says by which limit a gateway decides for a rule while the store is
// away.
type checkedLocal struct {
	Rule  string `json:"rule"`
	Limit string `json:"limit"`
}

// locals returns that of each rule that decides locally then.
func locals(f *policyfile.File) (all []checkedLocal) {
	for _, r := range f.Policy.Rules() {
		if r.Deny || r.Exempt || r.OnFault != policy.Local || !f.Server.Store.Shared() {
			continue
		}
		if part, ok := policy.LocalLimit(r.Limit, f.Server.Store.Nodes); ok {
			all = append(all, checkedLocal{r.Name, part.String()})
		}
	}
	return all
}

// localText says so for people.
func localText(f *policyfile.File) (lines []string) {
	for _, l := range locals(f) {
		if lines == nil {
			lines = append(lines, fmt.Sprintf("while the store is away each gateway of %d decides in its own memory; only there keys have the bound under KEYS:", f.Server.Store.Nodes))
		}
		lines = append(lines, fmt.Sprintf("  %s by %s", l.Rule, l.Limit))
	}
	return lines
}
