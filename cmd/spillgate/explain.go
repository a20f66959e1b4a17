package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

type explainFlags struct {
	method, path, host, ip, peer, at string
	headers, costs, attrs, claims    []string
	user, tenant, device, route      string
	client                           string // of a certificate
	refusal, log                     string
	asJSON                           bool
}

func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain POLICY.yaml",
		Short: "Say which rules apply to a request, and why",
		Long: `Explain says of one request which rules apply and which do not, and why not; the
key that each would charge; and what would be decided if nobody had used anything
yet. Each rule is told with its line. Secret parts of keys are shown as
fingerprints (hmac:…).

The client's address is given with --ip. With --peer it is found as the gateway
finds it: from the connection's peer and the headers, by the file's client_ip.
What only a program knows (--user and its like) a policy of the gateway has no
use for.

Fingerprints are those of the gateway's log if the file names a
fingerprint_key_file that can be read here, else of this run alone.

With --refusal it says of a request that was refused by which rule, for which key,
why and until when. The id is that of the answer's field Spillgate-Refusal and of
its body; --log is what spillgate serve wrote to standard error.

Exit codes: 0 explained; 1 the policy file has errors; 2 the command line is wrong
or the file can't be read.`,
		Example: `  spillgate explain limits.yaml --method POST --path /login --ip 203.0.113.7
  spillgate explain limits.yaml --path '/search?q=x' --header 'X-User-ID: 42'
  spillgate explain limits.yaml --peer 10.0.0.1 --header 'X-Forwarded-For: 203.0.113.7'
  spillgate explain examples/llm/limits.yaml --user ann --cost tokens=500 --json | jq .verdict
  spillgate explain limits.yaml --refusal 0f3a91c2d8e4b576 --log /var/log/spillgate.log
  journalctl -u spillgate -o cat | spillgate explain limits.yaml --refusal 0f3a91c2d8e4b576`,
		Args: onePolicy,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("refusal") || cmd.Flags().Changed("log") {
				return explainRefusal(cmd, args[0], f)
			}
			return explain(args[0], f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&f.method, "method", "GET", "the request's method")
	cmd.Flags().StringVar(&f.path, "path", "/", "its path, with a query or without")
	cmd.Flags().StringVar(&f.host, "host", "", "the host that it asks for")
	cmd.Flags().StringVar(&f.ip, "ip", "", "the client's address")
	cmd.Flags().StringVar(&f.peer, "peer", "", "the address of the connection's peer, maybe a proxy")
	cmd.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "a header, 'Name: value'; may be repeated")
	cmd.Flags().StringArrayVar(&f.costs, "cost", nil, "what the program says it costs, UNIT=N; may be repeated")
	cmd.Flags().StringVar(&f.at, "at", "", "when it comes, such as 2026-03-29T03:00:00+02:00 (default: now)")
	cmd.Flags().StringVar(&f.client, "tls-client", "", "whom the client's certificate is for (tls.client)")
	cmd.Flags().StringVar(&f.user, "user", "", "the user, as the program says")
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "the tenant, as the program says")
	cmd.Flags().StringVar(&f.device, "device", "", "the device, as the program says")
	cmd.Flags().StringVar(&f.route, "route", "", "the route, as the program's router says")
	cmd.Flags().StringArrayVar(&f.claims, "claim", nil, "a claim of a token that the program verified, NAME=VALUE; may be repeated")
	cmd.Flags().StringArrayVar(&f.attrs, "attr", nil, "what else the program says, NAME=VALUE; may be repeated")
	cmd.Flags().StringVar(&f.refusal, "refusal", "", "the id of a refusal, to be found in the log")
	cmd.Flags().StringVar(&f.log, "log", "-", "the file with the log lines, - for standard input")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object for programs")
	return cmd
}

func explain(path string, f explainFlags, stdout, stderr io.Writer) error {
	file, _, err := load(path, false, stderr)
	if err != nil {
		return err
	}
	request, raw, err := f.request()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	programs, err := f.program(file.Policy)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if f.peer != "" {
		programs = append(programs, httplimit.TrustedProxies(file.Server.Client))
	}
	opts, err := f.options(file)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if file.ForGateway {
		httplimit.KeepEscapes(request.URL)
		programs = append(programs, httplimit.AnyServer())
	}
	attrs := httplimit.Attributes(file.Policy, request, programs...)
	key, keyless := file.Server.FingerprintKey() // without it only the fingerprints are others
	x := explained{request: request, raw: raw, attrs: attrs, file: file, keyed: len(key) > 0, keyless: keyless,
		Explanation: file.Policy.ExplainKeyed(key, attrs, append(opts, policy.UseBackup())...)}
	if f.asJSON {
		err = printJSON(stdout, x.asJSON())
	} else {
		_, err = io.WriteString(stdout, x.text())
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

// explained is a request and what is said of it.
type explained struct {
	*policy.Explanation
	request *http.Request
	raw     string // its path as it was given
	attrs   policy.Attributes
	file    *policyfile.File
	keyed   bool  // fingerprints are those of all who have the file's key
	keyless error // why they are not
}

// attr returns an attribute of the request, "" if it has none.
func (x *explained) attr(k policy.Kind) string {
	v, _ := x.attrs.AppendAttr(nil, policy.Attribute{Kind: k})
	return string(v)
}

// readings returns the path as rules see it: servers may differ on it.
func (x *explained) readings() []string { return strings.Split(x.attr(policy.Path), "\x00") }

// text says for people what is to be said.
func (x *explained) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", x.request.Method, x.raw)
	if path := strings.Join(x.readings(), " or "); path != x.raw {
		fmt.Fprintf(&b, ", which rules see as %s,", path)
	}
	if host := x.attr(policy.Host); host != "" {
		fmt.Fprintf(&b, " at %s", host)
	}
	if ip := x.attr(policy.ClientIP); ip != "" {
		fmt.Fprintf(&b, " from %s\n", ip)
	} else {
		b.WriteString(" from nobody known: name the client with --ip, or the peer with --peer\n")
	}
	x.section(&b, "Exempts", func(at *policy.Explained) []string {
		switch {
		case !at.Exempts:
			return nil
		case at.Rule.Group != "":
			return []string{"from the rules of the group " + at.Rule.Group}
		}
		return []string{"from all rules"}
	})
	x.section(&b, "Applies", func(at *policy.Explained) []string {
		if at.Outcome == nil {
			return nil
		}
		return append(said(at), besides(at)...)
	})
	b.WriteString(reservedText(x.Reserved, x.request.ContentLength))
	x.section(&b, "Does not apply", func(at *policy.Explained) []string {
		if at.Why == "" {
			return nil
		}
		return []string{at.Why}
	})
	fmt.Fprintf(&b, "\n%s\n", x.conclusion())
	if strings.Contains(b.String(), "hmac:") {
		b.WriteString(x.fingerprints())
	}
	return b.String()
}

// fingerprints says who else shows a secret by the same fingerprint.
func (x *explained) fingerprints() string {
	switch {
	case x.keyed:
		return fmt.Sprintf("Fingerprints are keyed by %s, as those of the gateway.\n", x.file.Server.FingerprintKeyFile)
	case x.keyless != nil:
		return fmt.Sprintf("Fingerprints are of this run alone: %v.\n", x.keyless)
	}
	return "Fingerprints are of this run alone: the file names no fingerprint_key_file, by which they would be the gateway's.\n"
}

// section writes what is to be said of some rules, under a title.
func (x *explained) section(b *strings.Builder, title string, of func(*policy.Explained) []string) {
	for i := range x.Rules {
		lines := of(&x.Rules[i])
		if lines == nil {
			continue
		}
		if title != "" {
			fmt.Fprintf(b, "\n%s:\n", title)
			title = ""
		}
		fmt.Fprintf(b, "  %s\n", named(x.Rules[i].Rule))
		for _, line := range lines {
			fmt.Fprintf(b, "    %s\n", line)
		}
	}
}

// named names a rule and its place, if it has one.
func named(r *policy.Rule) string {
	if r.Source == "" {
		return r.Name
	}
	return fmt.Sprintf("%s (%s)", r.Name, r.Source)
}

// said returns what a rule that applies does.
func said(at *policy.Explained) []string {
	o, r := at.Outcome, at.Rule
	limited := r.Limit
	if by := o.Override; by != nil && by.Deny {
		lines := []string{"refuses " + at.Key + ", by the override " + by.String()}
		if o.Trial {
			lines[0] = "would refuse by the override " + by.String() + ", but only counts"
		}
		return lines
	} else if by != nil {
		limited = by.Limit
	}
	if !o.Judged() {
		why := "refuses every request that matches"
		if !r.Deny {
			why = "refuses what lacks a part of its key (missing: deny)"
		}
		if o.Trial {
			return []string{why + ", but only counts, so it lets this one pass"}
		}
		return []string{why}
	}
	did := fmt.Sprintf("charges %s to", amount(o.Decision.Taken, unit(r)))
	switch {
	case o.Peeked:
		did = "is only asked (peek), not charged, for"
	case !o.Decision.Allowed:
		did = "refuses"
		if o.Trial {
			did = "would refuse, but only counts for"
		}
	case o.Decision.Taken == 0:
		did = "would charge"
	}
	key := "what all share"
	if len(r.Key) > 0 {
		key = at.Key
	}
	out := []string{did + " " + key}
	limit := fmt.Sprintf("limit %s: ", limited)
	if o.Override != nil {
		limit = fmt.Sprintf("limit %s, by the override %s: ", limited, o.Override)
	}
	switch d := &o.Decision; {
	case limited.Algorithm == spillgate.Unlimited:
		limit += "no limit"
	case !d.Allowed && d.RetryAfter == spillgate.Never:
		limit += fmt.Sprintf("at most %d fit at once, so waiting does not help", d.Limit)
	case !d.Allowed:
		limit += fmt.Sprintf("retry after %s", waitText(d.RetryAfter))
	default:
		limit += fmt.Sprintf("then %d of %d are left", d.Remaining, d.Limit)
	}
	if kept := o.Kept(); kept > 0 {
		limit += fmt.Sprintf(", beside %d that are kept for better lanes", kept)
	}
	if at.Lane > 0 {
		limit += fmt.Sprintf(" (lane %d of %d)", at.Lane, len(r.Lanes))
	}
	return append(out, limit)
}

// besides returns what else becomes of the request under a rule that applies.
func besides(at *policy.Explained) []string {
	if at.Outcome.Peeked {
		return nil // it is not refused, whatever the rule says of that
	}
	out := effects(at.Rule)
	if r := at.Rule; 0 < r.Spare && r.Spare < 100 {
		out = append(out, "this key is taken for one that it may refuse; which these are, only the running engine knows")
	}
	return out
}

// conclusion says what is decided.
func (x *explained) conclusion() string {
	v := &x.Verdict
	const empty = "Even if nobody has used anything yet, "
	o := v.Refusing()
	wait := "Waiting does not help."
	if w := v.RetryAfter(); w != spillgate.Never {
		wait = fmt.Sprintf("It may come again after %s.", waitText(w))
	}
	switch {
	case v.Backup() != nil:
		return fmt.Sprintf("%s%s refuses the request, and sends it to its backup, %s.", empty, named(o.Rule), v.Backup().Upstream)
	case v.Allowed && !x.file.Policy.Enforced():
		return "The request passes: the file says enforce: off, so nobody is refused."
	case v.Allowed && v.Len() == 0 && v.Exempt() != nil:
		return fmt.Sprintf("The request passes: it is exempt by %s.", named(v.Exempt()))
	case v.Allowed && v.Len() == 0 && v.Exemption() != nil:
		return fmt.Sprintf("The request passes: it is exempt by the override %s.", v.Exemption())
	case v.Allowed && v.Len() == 0:
		return "No rule applies, so the request passes."
	case v.Allowed:
		return "If nobody has used anything yet, the request passes."
	case o != nil && !o.Judged():
		return fmt.Sprintf("The request is refused by %s. %s", named(o.Rule), wait)
	case o != nil:
		return fmt.Sprintf("%s%s refuses the request. %s", empty, named(o.Rule), wait)
	}
	return fmt.Sprintf("Nothing is decided: %v.", v.Err())
}

// explainedJSON is what `explain --json` prints.
type explainedJSON struct {
	Request explainedRequest `json:"request"`
	Rules   []explainedRule  `json:"rules"`
	Usage   []reservedJSON   `json:"usage,omitempty"`
	Verdict explainedVerdict `json:"verdict"`
	// Keyed says that fingerprints are those of all who have the file's key.
	Keyed bool `json:"fingerprints_keyed"`
}

type explainedRequest struct {
	Method   string   `json:"method"`
	Path     string   `json:"path"`
	Readings []string `json:"readings"` // the path as rules see it
	Host     string   `json:"host,omitempty"`
	ClientIP string   `json:"client_ip,omitempty"`
}

type explainedRule struct {
	Name       string   `json:"name"`
	Source     string   `json:"source"`
	Applies    bool     `json:"applies"`
	Why        string   `json:"why,omitempty"` // why not
	Matches    bool     `json:"matches"`
	Exempts    bool     `json:"exempts,omitempty"`
	Key        string   `json:"key,omitempty"`
	Override   string   `json:"override,omitempty"` // by which it refuses or has another limit
	Peeked     bool     `json:"peeked,omitempty"`
	Trial      bool     `json:"trial,omitempty"`
	Allowed    *bool    `json:"allowed,omitempty"`
	Unit       string   `json:"unit,omitempty"`
	Charged    *int64   `json:"charged,omitempty"`
	Remaining  *int64   `json:"remaining,omitempty"`
	Lane       int      `json:"lane,omitempty"`        // from 1
	Kept       int64    `json:"kept,omitempty"`        // for better lanes
	RetryAfter *float64 `json:"retry_after,omitempty"` // seconds; -1 if no wait helps

	*explainedEffects
}

// explainedEffects is what else becomes of a request under a rule that applies,
// in the words of `check --json`.
type explainedEffects struct {
	Failures []string       `json:"failures,omitempty"`
	Enforce  int            `json:"enforce"`
	Answer   *checkedAnswer `json:"answer,omitempty"`
	checkedHeld
	Penalty *checkedPenalty `json:"penalty,omitempty"`
	Tell    bool            `json:"tell"`
	OnFault string          `json:"on_fault"`
	Fault   *checkedAnswer  `json:"fault_answer,omitempty"`
}

type explainedVerdict struct {
	Allowed    bool     `json:"allowed"`
	DeniedBy   []string `json:"denied_by,omitempty"`
	RetryAfter *float64 `json:"retry_after,omitempty"`
	Backup     string   `json:"backup,omitempty"` // where it goes instead
	Error      string   `json:"error,omitempty"`
}

// waitText writes a wait as a policy file does, if it is of whole seconds.
func waitText(d time.Duration) string {
	if d%time.Second == 0 {
		return policyfile.FormatPeriod(d)
	}
	return d.String()
}

// seconds returns a wait in seconds, -1 if no wait helps.
func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	if d == spillgate.Never {
		s = -1
	}
	return &s
}

func (x *explained) asJSON() explainedJSON {
	out := explainedJSON{
		Request: explainedRequest{
			Method: x.request.Method, Path: x.raw, Readings: x.readings(),
			Host: x.attr(policy.Host), ClientIP: x.attr(policy.ClientIP),
		},
		Rules:   []explainedRule{},
		Usage:   reservedOf(x.Reserved),
		Verdict: explainedVerdict{Allowed: x.Verdict.Allowed},
		Keyed:   x.keyed,
	}
	for i := range x.Rules {
		at := &x.Rules[i]
		r := explainedRule{Name: at.Rule.Name, Source: at.Rule.Source, Applies: at.Outcome != nil, Why: at.Why, Matches: at.Matches, Exempts: at.Exempts, Key: at.Key}
		if at.Exempts {
			r.Key = ""
		}
		if o := at.Outcome; o != nil {
			r.Peeked, r.Trial, r.Allowed = o.Peeked, o.Trial, &o.Decision.Allowed
			if is := at.Rule; !o.Peeked {
				r.explainedEffects = &explainedEffects{
					is.Failures, 100 - is.Spare, answerJSON(is.Answer), heldJSON(is), penaltyJSON(is), is.Tell, faultWords[is.OnFault], answerJSON(is.FaultAnswer),
				}
			}
			if o.Override != nil {
				r.Override = o.Override.String()
			}
			if o.Judged() {
				r.Unit, r.Charged, r.Remaining, r.Kept, r.Lane = unit(at.Rule), &o.Decision.Taken, &o.Decision.Remaining, o.Kept(), at.Lane
			}
			if !o.Decision.Allowed {
				r.RetryAfter = seconds(o.Decision.RetryAfter)
			}
			if o.Refuses() {
				out.Verdict.DeniedBy = append(out.Verdict.DeniedBy, at.Rule.Name)
			}
		}
		out.Rules = append(out.Rules, r)
	}
	switch {
	case len(out.Verdict.DeniedBy) > 0:
		out.Verdict.RetryAfter = seconds(x.Verdict.RetryAfter())
		if b := x.Verdict.Backup(); b != nil {
			out.Verdict.Backup = b.Upstream
		}
	case !x.Verdict.Allowed:
		out.Verdict.Error = x.Verdict.Err().Error()
	}
	return out
}
