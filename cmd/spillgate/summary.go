package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// The words of a policy file for what a rule holds.
var (
	missingWords = map[policy.Missing]string{policy.Share: "share", policy.Skip: "skip", policy.Refuse: "deny"}
	faultWords   = map[policy.OnFault]string{policy.Local: "local", policy.Open: "open", policy.Shut: "closed"}
	atCapWords   = map[spillgate.AtCap]string{spillgate.Overflow: "overflow", spillgate.MakeRoom: "make_room"}
)

// summarise says for people what a file means: a line a rule, and under it
// whatever else the rule says.
func summarise(w io.Writer, path string, f *policyfile.File) error {
	rules := f.Policy.Rules()
	rows := [][]string{{"RULE", "REQUESTS", "EACH", "LIMIT", "KEYS"}}
	for i := range rules {
		r := &rules[i]
		rows = append(rows, []string{r.Name, requests(r.Match), each(r.Key), limitText(r), keysText(r)})
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], min(utf8.RuneCountInString(cell), widest)+2)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: OK, %s", path, plural(len(rules), "rule"))
	if len(f.Tests) > 0 {
		fmt.Fprintf(&b, ", %s", plural(len(f.Tests), "test"))
	}
	b.WriteString("\n\n")
	if !f.Policy.Enforced() {
		fmt.Fprintf(&b, "  %s\n\n", enforceOff)
	}
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", max(2, width[j]-utf8.RuneCountInString(cell))))
		}
		fmt.Fprintf(&b, "  %s\n", strings.TrimRight(line.String(), " "))
		if i > 0 {
			for _, more := range details(f.Policy, &rules[i-1]) {
				fmt.Fprintf(&b, "  %*s%s\n", width[0], "", more)
			}
		}
	}
	b.WriteString(pathsText(f.Policy.Paths()))
	for i, line := range overridesText(f.Policy) {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  %s\n", line)
	}
	for i, line := range usageText(f.Policy) {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if f.ForGateway {
		b.WriteByte('\n')
		for _, line := range append(append(serverText(&f.Server), leasesText(f)...), localText(f)...) {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	var beyond policyfile.Errors
	if !f.ForGateway && errors.As(f.BeyondGateway(), &beyond) {
		fmt.Fprintf(&b, "\n  for a program, not for spillgate serve: line %d: %s\n", beyond[0].Line, beyond[0].Msg)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func requests(m policy.Match) string {
	if len(m) == 0 {
		return "all"
	}
	var parts []string
	for _, c := range m {
		parts = append(parts, c.Attribute.String()+" "+few(c.Values, "|"))
	}
	return strings.Join(parts, ", ")
}

// widest is how many columns a cell may have that others are aligned to.
const widest = 150

// few writes values, of many the first.
func few(values []string, between string) string {
	const most = 10
	if len(values) <= most {
		return strings.Join(values, between)
	}
	return fmt.Sprintf("%s%s... (%d in all)", strings.Join(values[:3], between), between, len(values))
}

// enforceOff is said wherever somebody looks at a policy that refuses nobody.
const enforceOff = "ENFORCE IS OFF: nobody is refused, by whatever rule; all is counted and reported (enforce: off in the file)"

func each(key []policy.Part) string {
	if len(key) == 0 {
		return "all together"
	}
	return strings.Join(keyParts(key), " + ")
}

func keyParts(key []policy.Part) []string {
	parts := []string{}
	for _, p := range key {
		parts = append(parts, p.String())
	}
	return parts
}

func limitText(r *policy.Rule) string {
	switch {
	case r.Deny:
		return "denied"
	case r.Exempt:
		return "exempt"
	}
	return r.Limit.String()
}

// maxKeys returns how many keys a rule remembers at most.
func maxKeys(r *policy.Rule) int {
	switch {
	case r.Deny || r.Exempt:
		return 0
	case len(r.Key) == 0:
		return 1
	}
	return r.Table().MaxKeys
}

func keysText(r *policy.Rule) string {
	if r.Deny || r.Exempt {
		return "none"
	}
	s := fmt.Sprint(maxKeys(r))
	if len(r.Key) > 0 && r.AtCap == spillgate.MakeRoom {
		s += ", then one makes room"
	} else if len(r.Key) > 0 {
		s += ", then newcomers share"
	}
	if r.TTL > 0 {
		s += ", forgotten after " + policyfile.FormatPeriod(r.TTL)
	}
	return s
}

// details returns what a rule of p says besides.
func details(p *policy.Policy, r *policy.Rule) (out []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(r.Disabled, "SWITCHED OFF: applies to nothing (enabled: false)")
	add(r.Exempt && r.Group == "", "no rule with a limit charges these requests")
	add(r.Exempt && r.Group != "", "no rule of the group %s applies to these requests", r.Group)
	add(!r.Exempt && r.Group != "", "of the group %s", r.Group)
	add(len(r.Peek) > 0, "asks only: %s", requests(r.Peek))
	add(r.Unit == policy.Bytes && len(r.Prices) == 0, "counts the bytes of answers, and %d until they are known", max(1, r.Cost))
	add(r.Unit == policy.Bytes && len(r.Prices) > 0, "counts the bytes of answers, and until they are known what a request costs")
	add(unit(r) != policy.Requests && r.Unit != policy.Bytes && len(r.Prices) == 0, "counts %s, %s", r.Unit, aRequest(p, r))
	add(unit(r) == policy.Requests && r.Cost > 1 && len(r.Prices) == 0, "each costs %s", amount(r.Cost, policy.Requests))
	out = append(append(out, costs(r)...), lanes(r)...)
	if lacking := mayLack(r.Key); lacking != "" || r.Missing != policy.Share {
		add(true, "without %s: %s", cmp.Or(lacking, "a part of the key"), map[policy.Missing]string{
			policy.Share: "all such requests share one limit", policy.Skip: "the rule does not apply", policy.Refuse: "refused",
		}[r.Missing])
	}
	if hidden := secrets(r); len(hidden) > 0 {
		add(true, "shown as a fingerprint: %s", strings.Join(hidden, ", "))
	}
	if plain := unmarked(r); len(plain) > 0 {
		add(true, "logged as it is: %s (say secret if it lets its bearer in, or else shown)", strings.Join(plain, ", "))
	}
	return append(out, effects(r)...)
}

// effects returns what becomes of requests that a rule applies to, beside what
// its limit says.
func effects(r *policy.Rule) (out []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(len(r.Failures) > 0, "counts only requests that end in %s", strings.Join(r.Failures, ", "))
	add(r.Spare == 100, "refuses nobody: counts and reports only")
	add(r.Spare > 0 && r.Spare < 100, "refuses %d %% of the keys, counts and reports the others", 100-r.Spare)
	out = append(out, answerDetails(r)...)
	add(r.Tell, "tells the program behind what is left (%s)", httplimit.RemainingHeader)
	add(r.Hide, "tells clients no numbers (headers: off)")
	add(r.OnFault == policy.Open, "lets requests pass while the store can't answer")
	switch {
	case r.FaultAnswer != nil:
		add(true, "refuses as unavailable while the store can't answer, and answers: %s", answerText(r.FaultAnswer))
	case r.OnFault == policy.Shut:
		add(true, "refuses as unavailable while the store can't answer")
	}
	return out
}

func onOff(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }

func unit(r *policy.Rule) string { return cmp.Or(r.Unit, policy.Requests) }

// mayLack returns the first part of a key that a request may lack, "" if each
// request has all.
func mayLack(key []policy.Part) string {
	for _, p := range key {
		if !slices.ContainsFunc(p.Attributes, func(a policy.Attribute) bool { return a.Kind <= policy.Host }) {
			return p.String()
		}
	}
	return ""
}

func serverText(s *policyfile.Server) []string {
	upstream := "the upstream that --upstream or --demo names"
	if s.Upstream != "" {
		upstream = s.Upstream
	}
	lines := []string{fmt.Sprintf("serves %s in front of %s", s.Listen, upstream)}
	if s.UpstreamCAFile != "" {
		lines = append(lines, "upstreams: over TLS those whose certificates are signed by those in "+s.UpstreamCAFile)
	}
	if s.Client == nil {
		lines = append(lines, "client: the peer itself")
	} else {
		lines = append(lines, fmt.Sprintf("client: the peer itself, or who %s names if the peer is in %s",
			strings.ToLower(s.ClientIP.Header), few(s.ClientIP.Trusted, ", ")))
	}
	lines = append(lines, answerServerText(s)...)
	lines = append(lines, tlsText(s)...)
	lines = append(lines, connectionsText(&s.Connections)...)
	lines = append(lines, "RateLimit fields: "+map[policyfile.Headers]string{
		policyfile.HeadersOn: "in every answer", policyfile.HeadersRefusals: "in refusals", policyfile.HeadersOff: "in no answer",
	}[s.Headers])
	if s.Store.Shared() {
		return append(lines, storeText(s)...)
	}
	if s.State == "" {
		return append(lines, "state: none, so a restart begins every limit anew")
	}
	return append(lines, "state: "+s.State)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// checked is what `check --json` prints. Its words are those of a policy file.
type checked struct {
	File    string         `json:"file"`
	OK      bool           `json:"ok"`
	Enforce string         `json:"enforce,omitempty"`
	Rules   []checkedRule  `json:"rules,omitempty"`
	Usage   []checkedUsage `json:"usage,omitempty"`

	Overrides []checkedOverride `json:"overrides,omitempty"`

	Server *checkedServer `json:"server,omitempty"`
	Tests  []checkedTest  `json:"tests,omitempty"`
	Paths  *checkedPaths  `json:"paths,omitempty"`
	// BeyondGateway is what only a program knows, in a file without a server.
	BeyondGateway []checkedError   `json:"beyond_gateway,omitempty"`
	Warnings      []checkedWarning `json:"warnings,omitempty"`
	Errors        []checkedError   `json:"errors,omitempty"`
}

type checkedRule struct {
	Name    string              `json:"name"`
	Source  string              `json:"source"`
	Enabled bool                `json:"enabled"`
	Group   string              `json:"group,omitempty"`
	Exempt  bool                `json:"exempt"`
	Match   map[string][]string `json:"match"`
	Peek    map[string][]string `json:"peek,omitempty"`
	Key     []string            `json:"key"`
	Missing string              `json:"missing"`
	Limit   string              `json:"limit,omitempty"`
	Secret  []string            `json:"secret,omitempty"`
	Answer  *checkedAnswer      `json:"answer,omitempty"`

	checkedHeld
	checkedAmounts

	Deny     bool            `json:"deny"`
	Unit     string          `json:"unit"`
	Cost     int64           `json:"cost,omitempty"` // the same for all; else there are costs
	Failures []string        `json:"failures,omitempty"`
	Enforce  int             `json:"enforce"`
	Penalty  *checkedPenalty `json:"penalty,omitempty"`
	Tell     bool            `json:"tell"`
	Headers  string          `json:"headers"`
	OnFault  string          `json:"on_fault"`
	Fault    *checkedAnswer  `json:"fault_answer,omitempty"`
	MaxKeys  int             `json:"max_keys"` // 1 without a key, 0 for one that denies
	AtCap    string          `json:"at_cap"`
	TTL      string          `json:"ttl,omitempty"`
}

type checkedTest struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

type checkedServer struct {
	Listen   string `json:"listen"`
	Upstream string `json:"upstream,omitempty"`

	UpstreamCAFile string `json:"upstream_ca_file,omitempty"`

	ClientIP *checkedClientIP `json:"client_ip,omitempty"`
	Headers  string           `json:"headers"`
	State    string           `json:"state,omitempty"`

	checkedTold

	Connections *checkedConnections `json:"connections,omitempty"`
	TLS         *checkedTLS         `json:"tls,omitempty"`
	H2C         bool                `json:"h2c,omitempty"`
	Store       *checkedStore       `json:"store,omitempty"`
}

type checkedClientIP struct {
	Trusted []string `json:"trusted"`
	From    string   `json:"from"`
}

type checkedError struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

type checkedWarning struct {
	Code string `json:"code"`
	checkedError
}

func checkJSON(w io.Writer, path string) (*policyfile.File, error) {
	out := checked{File: path, OK: true}
	f, _, err := parse(path)
	var errs policyfile.Errors
	switch {
	case errors.As(err, &errs):
		out.OK = false
		out.Errors = errorsJSON(errs)
	case err != nil:
		return nil, err
	default:
		out.Enforce = onOff(f.Policy.Enforced())
		for i := range f.Policy.Rules() {
			out.Rules = append(out.Rules, ruleJSON(&f.Policy.Rules()[i]))
		}
		out.Usage, out.Overrides = usageJSON(f.Policy), overridesJSON(f.Policy)
		if f.ForGateway {
			out.Server = serverJSON(&f.Server)
			if store := out.Server.Store; store != nil {
				store.Leases, _ = leases(f)
				store.Local = locals(f)
			}
		}
		for _, t := range f.Tests {
			out.Tests = append(out.Tests, checkedTest{t.Name, t.Source})
		}
		out.Paths = pathsJSON(f.Policy.Paths())
		if errors.As(f.BeyondGateway(), &errs) {
			out.BeyondGateway = errorsJSON(errs)
		}
		for _, w := range f.Warnings {
			out.Warnings = append(out.Warnings, checkedWarning{w.Code, checkedError{w.Line, w.Column, w.Msg, w.Fix}})
		}
	}
	if err := printJSON(w, out); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if !out.OK {
		return nil, &exitError{exitPolicy, nil}
	}
	return f, nil
}

func ruleJSON(r *policy.Rule) checkedRule {
	c := checkedRule{
		Name: r.Name, Source: r.Source, Match: conditions(r.Match), Key: keyParts(r.Key), Missing: missingWords[r.Missing],
		Enabled: !r.Disabled, Group: r.Group, Exempt: r.Exempt,
		Deny: r.Deny, Unit: unit(r), Cost: max(1, r.Cost), Failures: r.Failures, Enforce: 100 - r.Spare, Penalty: penaltyJSON(r), Tell: r.Tell, Headers: onOff(!r.Hide),
		OnFault: faultWords[r.OnFault], Fault: answerJSON(r.FaultAnswer), MaxKeys: maxKeys(r), AtCap: atCapWords[r.AtCap],
	}
	c.Secret, c.Answer, c.checkedHeld = secrets(r), answerJSON(r.Answer), heldJSON(r)
	if len(r.Prices) > 0 {
		c.Cost = 0
	}
	if len(r.Peek) > 0 {
		c.Peek = conditions(r.Peek)
	}
	if !r.Deny && !r.Exempt {
		c.Limit = r.Limit.String()
	}
	if r.TTL > 0 {
		c.TTL = policyfile.FormatPeriod(r.TTL)
	}
	c.checkedAmounts = checkedAmounts{costsJSON(r), lanesJSON(r)}
	return c
}

func conditions(m policy.Match) map[string][]string {
	out := make(map[string][]string)
	for _, c := range m {
		out[c.Attribute.String()] = c.Values
	}
	return out
}

func serverJSON(s *policyfile.Server) *checkedServer {
	out := &checkedServer{Listen: s.Listen, Upstream: s.Upstream, UpstreamCAFile: s.UpstreamCAFile, Headers: s.Headers.String(), State: s.State, checkedTold: toldJSON(s)}
	out.Connections, out.TLS, out.H2C, out.Store = connectionsJSON(&s.Connections), tlsJSON(s.TLS), s.H2C, storeJSON(s)
	if s.Client != nil {
		out.ClientIP = &checkedClientIP{Trusted: s.ClientIP.Trusted, From: s.ClientIP.Header}
	}
	return out
}
