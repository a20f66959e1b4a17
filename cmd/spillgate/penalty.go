package main

import (
	"fmt"

	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// penaltyText says what a rule's penalty does.
func penaltyText(r *policy.Rule) string {
	p := r.Penalty.Filled()
	s := fmt.Sprintf("blocks a key for %s after %s within %s", policyfile.FormatPeriod(p.Block), plural(int(p.After), "refusal"), policyfile.FormatPeriod(p.Within))
	if p.Grow > 1 {
		s += fmt.Sprintf(", each time %d times as long, to %s; forgotten %s after the last block began",
			p.Grow, policyfile.FormatPeriod(p.Most), policyfile.FormatPeriod(p.Forget))
	}
	return s
}

type checkedPenalty struct {
	After  int64  `json:"after"`
	Within string `json:"within"`
	Block  string `json:"block"`
	Grow   int64  `json:"grow"`
	Most   string `json:"most,omitempty"`
	Forget string `json:"forget,omitempty"`
}

func penaltyJSON(r *policy.Rule) *checkedPenalty {
	if r.Penalty == (policy.Penalty{}) {
		return nil
	}
	p := r.Penalty.Filled()
	c := &checkedPenalty{After: p.After, Within: policyfile.FormatPeriod(p.Within), Block: policyfile.FormatPeriod(p.Block), Grow: p.Grow}
	if p.Grow > 1 {
		c.Most, c.Forget = policyfile.FormatPeriod(p.Most), policyfile.FormatPeriod(p.Forget)
	}
	return c
}
