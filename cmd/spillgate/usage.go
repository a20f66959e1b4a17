package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/policy"
)

// usageText says for people how calls are paid for, two lines each or three.
func usageText(p *policy.Policy) (lines []string) {
	for i := range p.Usage() {
		u := &p.Usage()[i]
		lines = append(lines,
			fmt.Sprintf("usage of %s: %s, as answers say (%s)", usageUnit(u), requests(u.Match), formatText(u)),
			fmt.Sprintf("  reserves %s for the request and %s for the answer%s; errors are %s",
				cmp.Or(u.Input, policy.DefaultInput), cmp.Or(u.Output, policy.DefaultOutput), weightsText(u), errorsWord(u)))
		if u.Read != 0 && u.Read != policy.DefaultRead {
			lines = append(lines, fmt.Sprintf("  looks at %d bytes of a request", u.Read))
		}
	}
	return lines
}

func usageUnit(u *policy.Usage) string { return cmp.Or(u.Unit, policy.Tokens) }

// aRequest says how many units a request costs a rule without prices.
func aRequest(p *policy.Policy, r *policy.Rule) string {
	text := fmt.Sprintf("%d a request", max(1, r.Cost))
	for i := range p.Usage() {
		u := &p.Usage()[i]
		switch {
		case usageUnit(u) != r.Unit:
		case len(u.Match) == 0:
			return "as usage says of a call"
		default:
			text = fmt.Sprintf("as usage says of a call, else %d a request", max(1, r.Cost))
		}
	}
	return text
}

func formatText(u *policy.Usage) string {
	if u.Format != "" {
		return u.Format
	}
	var parts []string
	for _, word := range slices.Sorted(maps.Keys(u.Paths)) {
		parts = append(parts, word+" "+strings.Join(u.Paths[word], " + "))
	}
	return strings.Join(parts, ", ")
}

func weightsText(u *policy.Usage) string {
	var parts []string
	for _, word := range slices.Sorted(maps.Keys(u.Weights)) {
		parts = append(parts, fmt.Sprintf("%s %d%%", word, u.Weights[word]))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", weighing " + strings.Join(parts, ", ")
}

func errorsWord(u *policy.Usage) string {
	if u.Keep {
		return "charged"
	}
	return "free"
}

// checkedUsage is a usage as `check --json` prints it.
type checkedUsage struct {
	Source  string              `json:"source"`
	Match   map[string][]string `json:"match"`
	Unit    string              `json:"unit"`
	Format  string              `json:"format,omitempty"`
	Paths   map[string][]string `json:"paths,omitempty"`
	Input   string              `json:"input"`
	Output  string              `json:"output"`
	Weights map[string]string   `json:"weights,omitempty"`
	Errors  string              `json:"errors"`
	Read    int64               `json:"read"`
}

func usageJSON(p *policy.Policy) (out []checkedUsage) {
	for i := range p.Usage() {
		u := &p.Usage()[i]
		c := checkedUsage{
			Source: u.Source, Match: conditions(u.Match), Unit: usageUnit(u), Format: u.Format, Paths: u.Paths,
			Input: cmp.Or(u.Input, policy.DefaultInput), Output: cmp.Or(u.Output, policy.DefaultOutput), Errors: errorsWord(u),
			Read: cmp.Or(u.Read, policy.DefaultRead),
		}
		for word, n := range u.Weights {
			if c.Weights == nil {
				c.Weights = make(map[string]string)
			}
			c.Weights[word] = fmt.Sprintf("%d%%", n)
		}
		out = append(out, c)
	}
	return out
}

// reservedText says for people by which usages a request is paid for.
func reservedText(all []policy.Reserved, length int64) string {
	body := "without a body"
	if length != 0 {
		body = "with a body of unknown length"
	}
	if length > 0 {
		body = fmt.Sprintf("with a body of %d bytes", length)
	}
	var b strings.Builder
	for i, r := range all {
		if i == 0 {
			b.WriteString("\nPaid for by usage:\n")
		}
		fmt.Fprintf(&b, "  %s (%s)\n", usageUnit(r.Usage), r.Usage.Source)
		fmt.Fprintf(&b, "    reserves %d for a request %s; what it asks for may change that, and the answer says what was used\n", r.Units, body)
	}
	return b.String()
}

type reservedJSON struct {
	Source   string `json:"source"`
	Unit     string `json:"unit"`
	Reserved int64  `json:"reserved"` // by the length of its body alone
}

func reservedOf(all []policy.Reserved) (out []reservedJSON) {
	for _, r := range all {
		out = append(out, reservedJSON{r.Usage.Source, usageUnit(r.Usage), r.Units})
	}
	return out
}
