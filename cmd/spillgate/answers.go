package main

import (
	"fmt"
	"strings"

	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// secrets returns the attributes in a rule's key that are shown as fingerprints.
func secrets(r *policy.Rule) (out []string) {
	for i := range r.Key {
		for _, a := range r.Key[i].Attributes {
			if r.Key[i].Hides(a) {
				out = append(out, a.String())
			}
		}
	}
	return out
}

// answerDetails returns what a rule says of how it is shown and what it
// answers.
func answerDetails(r *policy.Rule) (out []string) {
	if hidden := secrets(r); len(hidden) > 0 {
		out = append(out, "shown as a fingerprint: "+strings.Join(hidden, ", "))
	}
	return out
}

// answerServerText returns what a server part says of the same.
func answerServerText(s *policyfile.Server) (out []string) {
	if s.FingerprintKeyFile != "" {
		out = append(out, fmt.Sprintf("fingerprints of secrets: keyed by %s", s.FingerprintKeyFile))
	}
	return out
}
