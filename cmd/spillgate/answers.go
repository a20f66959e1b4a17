package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// unmarked returns what clients claim in a rule's key that is shown as it is, and
// of which the key does not say so.
func unmarked(r *policy.Rule) (out []string) {
	for i := range r.Key {
		p := &r.Key[i]
		for _, a := range p.Attributes {
			if a.Kind.Claimed() && !p.Shown && !p.Hides(a) {
				out = append(out, a.String())
			}
		}
	}
	return out
}

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

// answerDetails returns what a rule says of those whom it refuses.
func answerDetails(r *policy.Rule) (out []string) {
	if r.Delay != (policy.Delay{}) {
		d := r.Delay.Filled()
		out = append(out, fmt.Sprintf("holds up to %s what it would refuse, %d requests at a key", policyfile.FormatPeriod(d.Most), d.Queue))
	}
	if r.Backup != nil {
		out = append(out, fmt.Sprintf("backup for %s: %s", requests(r.Backup.Match), r.Backup.Upstream))
	}
	if r.Answer != nil {
		out = append(out, "answers those whom it refuses: "+answerText(r.Answer))
	}
	if r.Penalty != (policy.Penalty{}) {
		out = append(out, penaltyText(r))
	}
	return out
}

// answerText says an answer in one line.
func answerText(a *policy.Answer) string {
	var parts []string
	if a.Status != 0 {
		parts = append(parts, fmt.Sprint(a.Status))
	}
	if a.Problem != "" {
		parts = append(parts, string(a.Problem))
	}
	if a.Type != "" {
		parts = append(parts, fmt.Sprintf("%d bytes of %s", len(a.Body), a.Type))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		parts = append(parts, name+": "+a.Header[name])
	}
	return strings.Join(parts, ", ")
}

// answers returns what a server part says of answers as options.
func answers(s *policyfile.Server) []httplimit.Option {
	opts := []httplimit.Option{httplimit.Jitter(s.Jitter)}
	if s.Dialects != nil {
		var ds []httplimit.Dialect
		for _, name := range s.Dialects {
			ds = append(ds, dialects[name])
		}
		opts = append(opts, httplimit.Dialects(ds...))
	}
	if s.PartitionKeys {
		opts = append(opts, httplimit.PartitionKeys())
	}
	return opts
}

// dialects says in the gateway's words what a policy file says in its own.
var dialects = map[policyfile.Dialect]httplimit.Dialect{
	policyfile.DialectDraft:  httplimit.Draft,
	policyfile.DialectGitHub: httplimit.GitHub,
	policyfile.DialectDelta:  httplimit.Delta,
	policyfile.DialectOpenAI: httplimit.OpenAI,
	policyfile.DialectEnvoy:  httplimit.Envoy,
}

// pathsText returns what a file says of paths, "" if that is nothing.
func pathsText(p policy.Paths) string {
	var out []string
	if p.AnyCase {
		out = append(out, "in any case")
	}
	if p.Slash {
		out = append(out, "with a slash at the end are others than without")
	}
	if len(out) == 0 {
		return ""
	}
	return "\n  paths " + strings.Join(out, ", and ") + "\n"
}

// checkedPaths is what a file says of paths, for programs.
type checkedPaths struct {
	Case          string `json:"case"`
	TrailingSlash string `json:"trailing_slash"`
}

func pathsJSON(p policy.Paths) *checkedPaths {
	if p == (policy.Paths{}) {
		return nil
	}
	words := map[bool]string{false: "ignored", true: "matters"}
	return &checkedPaths{words[!p.AnyCase], words[p.Slash]}
}

// answerServerText returns what a server part says of the same.
func answerServerText(s *policyfile.Server) (out []string) {
	if s.FingerprintKeyFile != "" {
		out = append(out, fmt.Sprintf("fingerprints of secrets: keyed by %s", s.FingerprintKeyFile))
	}
	if len(s.Dialects) > 0 {
		var names []string
		for _, d := range s.Dialects {
			names = append(names, string(d))
		}
		out = append(out, "dialects: "+strings.Join(names, ", "))
	}
	if s.Jitter > 0 {
		out = append(out, fmt.Sprintf("Retry-After: up to %d %% longer than needed", s.Jitter))
	}
	if s.PartitionKeys {
		out = append(out, "partition keys: told")
	}
	return out
}

// checkedAnswer is an answer for programs.
type checkedAnswer struct {
	Status  int               `json:"status,omitempty"`
	Problem string            `json:"problem,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Type    string            `json:"type,omitempty"`
	Bytes   int               `json:"bytes,omitempty"`
}

func answerJSON(a *policy.Answer) *checkedAnswer {
	if a == nil {
		return nil
	}
	return &checkedAnswer{a.Status, string(a.Problem), a.Header, a.Type, len(a.Body)}
}

// checkedHeld is what a rule says of holding requests and of sending them
// elsewhere.
type checkedHeld struct {
	Delay  *checkedDelay  `json:"delay,omitempty"`
	Backup *checkedBackup `json:"backup,omitempty"`
}

type checkedDelay struct {
	Most  string `json:"most"`
	Queue int    `json:"queue"`
}

type checkedBackup struct {
	Upstream string              `json:"upstream"`
	Match    map[string][]string `json:"match"`
}

func heldJSON(r *policy.Rule) (out checkedHeld) {
	if r.Delay != (policy.Delay{}) {
		d := r.Delay.Filled()
		out.Delay = &checkedDelay{policyfile.FormatPeriod(d.Most), d.Queue}
	}
	if r.Backup != nil {
		out.Backup = &checkedBackup{r.Backup.Upstream, conditions(r.Backup.Match)}
	}
	return out
}

// checkedTold is what a server part says of what clients are told.
type checkedTold struct {
	FingerprintKeyFile string               `json:"fingerprint_key_file,omitempty"`
	Dialects           []policyfile.Dialect `json:"dialects,omitempty"`
	Jitter             int                  `json:"jitter_percent,omitempty"`
	PartitionKeys      bool                 `json:"partition_keys,omitempty"`
}

func toldJSON(s *policyfile.Server) checkedTold {
	return checkedTold{s.FingerprintKeyFile, s.Dialects, s.Jitter, s.PartitionKeys}
}
