package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// A refused is what the log says of one refusal, beside what the policy file
// says of its rule now.
type refused struct {
	ID         string    `json:"id"`
	Time       time.Time `json:"time"`
	Status     int       `json:"status,omitzero"`
	Code       string    `json:"code,omitempty"` // of a call of gRPC, in place of a status
	Method     string    `json:"method"`
	Host       string    `json:"host,omitempty"`
	Path       string    `json:"path,omitempty"`
	Client     string    `json:"client"`
	Rule       string    `json:"rule,omitempty"`
	Source     string    `json:"source,omitempty"` // of the rule; "" if the file has none of that name
	Text       string    `json:"text,omitempty"`   // of its first line
	Limit      string    `json:"limit,omitempty"`
	Key        string    `json:"key,omitempty"`
	Why        string    `json:"why,omitempty"`
	Cost       int64     `json:"cost,omitempty"`     // if that is not 1
	Override   string    `json:"override,omitempty"` // its place
	Reason     string    `json:"reason,omitempty"`   // of the override
	Owner      string    `json:"owner,omitempty"`
	List       string    `json:"list,omitempty"`        // the place of the entry that names the caller
	RetryAfter *float64  `json:"retry_after,omitempty"` // seconds; -1 if no wait helps
	Until      time.Time `json:"until,omitzero"`
	Error      string    `json:"error,omitempty"` // why nothing was decided

	wait time.Duration
	rule *policy.Rule
}

// explainRefusal finds a refusal in a log, and says all that is known of it.
func explainRefusal(cmd *cobra.Command, path string, f explainFlags) error {
	var others []string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "refusal", "log", "json":
		default:
			others = append(others, "--"+flag.Name)
		}
	})
	usage := func(format string, args ...any) error { return &exitError{exitUsage, fmt.Errorf(format, args...)} }
	switch id := strings.ToLower(f.refusal); {
	case !cmd.Flags().Changed("refusal"):
		return usage("--log is where --refusal is looked for: name the id too")
	case len(others) > 0:
		return usage("%s: --refusal names a request that came, so there is nothing to describe; leave it out", strings.Join(others, ", "))
	case len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "":
		return usage("--refusal %q: want 16 hexadecimal digits, as in the field Spillgate-Refusal of the answer, or in a gRPC status as the request_id of a RequestInfo", f.refusal)
	default:
		f.refusal = id
	}
	file, data, err := load(path, false, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	in, from := cmd.InOrStdin(), "standard input"
	if f.log != "-" {
		opened, err := os.Open(f.log)
		if err != nil {
			return usage("--log: %w", err)
		}
		defer opened.Close()
		in, from = opened, f.log
	}
	r, err := findRefusal(in, f.refusal)
	if err != nil {
		return usage("--log: %s: %w", from, err)
	}
	r.lookUp(file, data)
	if f.asJSON {
		err = printJSON(cmd.OutOrStdout(), r)
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), r.text(time.Now()))
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

// maxLine is how long a log line may be to be looked at, in bytes: those of the
// gateway are a few hundred.
const maxLine = 64 << 10

// findRefusal reads a log up to the line of that refusal.
func findRefusal(log io.Reader, id string) (*refused, error) {
	in := bufio.NewReaderSize(log, maxLine)
	lines, ours := 0, 0
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			lines++
		}
		if bytes.Contains(line, []byte("refusal_id")) {
			ours++
			if bytes.Contains(line, []byte(id)) {
				if r, ok := readRefusal(string(line), id); ok {
					return r, nil
				}
			}
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line that is too long
			_, err = in.ReadSlice('\n')
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return nil, err
		case lines == 0:
			return nil, errors.New("it is empty")
		case ours == 0:
			return nil, fmt.Errorf("none of %s tells of a refusal; want what spillgate serve wrote to standard error", plural(lines, "line"))
		default:
			return nil, fmt.Errorf("no refusal %s among the %d that are told. Of each second 100 are told, and the first of each rule; the others are counted (suppressed). Or it is in an older file", id, ours)
		}
	}
}

// readRefusal reads a line in one of the forms that the gateway writes, maybe
// behind what some other program wrote in front. It reports false if the line is
// not that of the refusal.
func readRefusal(line, id string) (*refused, bool) {
	get := textFields(line)
	if at := strings.IndexByte(line, '{'); at >= 0 {
		var m map[string]any
		if json.Unmarshal([]byte(line[at:]), &m) == nil {
			get = func(key string) string {
				if v, ok := m[key]; ok {
					return fmt.Sprint(v)
				}
				return ""
			}
		}
	}
	if get("refusal_id") != id {
		return nil, false
	}
	r := &refused{
		ID: id, Method: get("method"), Host: get("host"), Path: get("path"), Client: get("client"), Rule: get("rule"), Key: get("key"), Why: get("why"),
		Code: get("code"), Override: get("override"), Reason: get("reason"), Owner: get("owner"), Error: get("error"),
	}
	r.List = get("list")
	r.Cost, _ = strconv.ParseInt(get("cost"), 10, 64) // 0 is unknown
	r.Status, _ = strconv.Atoi(get("status"))
	r.Time, _ = time.Parse(time.RFC3339Nano, get("time")) // the zero time is "unknown"
	switch told := get("retry_after"); told {
	case "":
	case "never":
		r.RetryAfter = new(float64)
		*r.RetryAfter = -1
	default:
		if wait, err := time.ParseDuration(told); err == nil {
			r.RetryAfter, r.wait = seconds(wait), wait
			if !r.Time.IsZero() {
				r.Until = r.Time.Add(wait)
			}
		}
	}
	return r, true
}

// textFields reads a line of keys and values, as slog writes it.
func textFields(line string) func(key string) string {
	fields := make(map[string]string)
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " ") {
		end := strings.IndexAny(line, " =")
		if end < 0 || line[end] == ' ' { // a word of somebody else's
			_, line, _ = strings.Cut(line, " ")
			continue
		}
		key := line[:end]
		line = line[end+1:]
		value, err := strconv.QuotedPrefix(line)
		if err != nil {
			value, line, _ = strings.Cut(line, " ")
			fields[key] = value
			continue
		}
		line = line[len(value):]
		fields[key], _ = strconv.Unquote(value) // it is quoted well
	}
	return func(key string) string { return fields[key] }
}

// lookUp adds what the file says of the rule.
func (r *refused) lookUp(file *policyfile.File, data []byte) {
	rules := file.Policy.Rules()
	for i := range rules {
		if rules[i].Name != r.Rule {
			continue
		}
		r.rule = &rules[i]
		r.Source = rules[i].Source
		if !r.rule.Deny && !r.rule.Exempt {
			r.Limit = r.rule.Limit.String()
		}
		at, _ := strconv.Atoi(r.Source[strings.LastIndexByte(r.Source, ':')+1:])
		if lines := strings.Split(string(data), "\n"); 1 <= at && at <= len(lines) {
			r.Text = strings.TrimRight(lines[at-1], "\r")
		}
	}
}

// text says for people what is known of a refusal.
func (r *refused) text(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "refusal %s: %s", r.ID, printed(r.Method))
	how := r.Code
	if how == "" {
		how = strconv.Itoa(r.Status)
		fmt.Fprintf(&b, " %s", printed(r.Path))
	}
	if r.Host != "" {
		fmt.Fprintf(&b, " at %s", printed(r.Host))
	}
	fmt.Fprintf(&b, " from %s", printed(r.Client))
	if !r.Time.IsZero() {
		fmt.Fprintf(&b, ", on %s", r.Time.Format(time.RFC3339))
	}
	if r.Rule == "" {
		fmt.Fprintf(&b, "\n\nIt was answered with %s, and no rule refused it: %s.\n", printed(how), printed(strings.TrimSuffix(r.Error, ".")))
		return b.String()
	}
	by := printed(r.Rule)
	if r.rule != nil {
		by = named(r.rule)
	}
	fmt.Fprintf(&b, "\n\nRefused with %s by %s\n", printed(how), by)
	if r.Text != "" {
		fmt.Fprintf(&b, "    %s\n", strings.TrimSpace(r.Text))
	}
	if r.Key != "" {
		key := printed(r.Key)
		if key == "*" {
			key = "what all share"
		}
		fmt.Fprintf(&b, "  for     %s\n", key)
	}
	fmt.Fprintf(&b, "  because %s\n", r.because())
	switch {
	case r.RetryAfter == nil:
	case *r.RetryAfter < 0:
		b.WriteString("  waiting does not help\n")
	case r.Until.IsZero():
		fmt.Fprintf(&b, "  until   %s later\n", r.wait)
	default:
		when := "which is over"
		if left := r.Until.Sub(now); left > 0 {
			when = fmt.Sprintf("%s from now", left.Round(time.Second))
		}
		fmt.Fprintf(&b, "  until   %s, %s\n", r.Until.Format(time.RFC3339), when)
	}
	switch {
	case r.rule == nil && r.Override == "":
		b.WriteString("\nThe file has no rule of that name (any more).\n")
	case r.rule != nil && r.rule.Disabled:
		b.WriteString("\nThe rule is switched off now (enabled: false).\n")
	}
	return b.String()
}

// printed quotes what a terminal would take for more than text: a client chose it.
func printed(s string) string {
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// because says why the rule refused.
func (r *refused) because() string {
	limit, of, why := r.Limit, "", ""
	if limit == "" {
		limit = "its limit"
	}
	if r.Override != "" {
		of = "of the override " + printed(r.Override)
		if r.List != "" {
			of += ", by its list (" + printed(r.List) + ")"
		}
		if r.Reason != "" {
			why = ": " + printed(r.Reason)
		}
		if r.Owner != "" {
			why += " (" + printed(r.Owner) + ")"
		}
		limit = "the limit " + of
	}
	cost := "more"
	if r.Cost > 0 {
		cost = fmt.Sprintf("%d, more", r.Cost)
	}
	switch {
	case of != "" && r.Why != "over limit" && r.Why != "never fits":
		return of + why
	case r.Why == "blocked":
		return "the key is blocked, for it was refused too often (penalty)"
	case r.Why == "denied by rule":
		return "the rule refuses every request that matches"
	case r.Why == "key incomplete":
		return "the request lacks a part of the key, and such requests the rule refuses"
	case r.Why == "never fits":
		return fmt.Sprintf("the request costs %s than %s ever holds", cost, limit) + why
	case r.Why == "over limit":
		return limit + " was used up" + why + r.unheld()
	case r.Why != "":
		return "the limit said: " + printed(r.Why)
	}
	return "the log does not say why"
}

// unheld says why a request was not held until it fits, "" if its rule holds none.
func (r *refused) unheld() string {
	if r.rule == nil || r.rule.Delay == (policy.Delay{}) {
		return ""
	}
	d := r.rule.Delay.Filled()
	text := fmt.Sprintf("; the rule holds requests up to %s, %d at a key", policyfile.FormatPeriod(d.Most), d.Queue)
	if r.wait > d.Most {
		text += fmt.Sprintf(", and this one would have waited %s", r.wait)
	}
	return text
}
