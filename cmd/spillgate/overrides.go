package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/watch"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// overridesText says what the overrides of a policy mean, a line each.
func overridesText(p *policy.Policy) (lines []string) {
	for _, o := range p.Overrides().All() {
		does := "exempts"
		switch {
		case o.Deny:
			does = "blocks"
		case !o.Exempt:
			does = fmt.Sprintf("sets %s for", o.Limit)
		}
		var who []string
		if len(o.Match) > 0 {
			who = append(who, requests(o.Match))
		}
		if o.List != "" {
			who = append(who, fmt.Sprintf("those whose %s %s lists (%s)", listKey(o), o.List, entries(p.Overrides().Listed(o))))
		}
		line := fmt.Sprintf("override: %s %s", does, strings.Join(who, ", of "))
		switch rules := append(append([]string{}, o.Rules...), o.Groups...); {
		case len(rules) > 0:
			line += ", of " + few(rules, ", ")
		case o.Deny:
			line += ", of everything"
		default:
			line += ", of all rules"
		}
		if !o.Until.IsZero() {
			line += ", until " + o.Until.Format(time.RFC3339)
		}
		if o.Reason != "" {
			line += ": " + o.Reason
		}
		if o.Owner != "" {
			line += " (" + o.Owner + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

// listKey returns the attribute that a list names callers by.
func listKey(o *policy.Override) string {
	if len(o.Key.Attributes) == 0 {
		return "client.ip"
	}
	return o.Key.String()
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

type checkedOverride struct {
	Source  string              `json:"source"`
	Rule    []string            `json:"rule,omitempty"`
	Group   []string            `json:"group,omitempty"`
	Match   map[string][]string `json:"match,omitempty"`
	List    string              `json:"list,omitempty"`
	Key     string              `json:"key,omitempty"`
	Entries int                 `json:"entries,omitempty"`
	Exempt  bool                `json:"exempt"`
	Deny    bool                `json:"deny"`
	Limit   string              `json:"limit,omitempty"`
	Reason  string              `json:"reason,omitempty"`
	Owner   string              `json:"owner,omitempty"`
	Until   string              `json:"until,omitempty"`
}

func overridesJSON(p *policy.Policy) (out []checkedOverride) {
	for _, o := range p.Overrides().All() {
		c := checkedOverride{
			Source: o.Source, Rule: o.Rules, Group: o.Groups, List: o.List, Exempt: o.Exempt, Deny: o.Deny, Reason: o.Reason, Owner: o.Owner,
		}
		if len(o.Match) > 0 {
			c.Match = conditions(o.Match)
		}
		if o.List != "" {
			c.Key, c.Entries = listKey(o), p.Overrides().Listed(o)
		}
		if o.Limit != (spillgate.Limit{}) {
			c.Limit = o.Limit.String()
		}
		if !o.Until.IsZero() {
			c.Until = o.Until.Format(time.RFC3339)
		}
		out = append(out, c)
	}
	return out
}

// lookEvery is how often the lists are looked at.
const lookEvery = time.Second

// watchLists keeps an engine's overrides as the lists of a file say, until the
// function that it returns is called.
func watchLists(ctx context.Context, file *policyfile.File, path string, engine *policy.Engine, logger *slog.Logger) (stop func()) {
	lists := file.Lists()
	if len(lists) == 0 {
		return func() {}
	}
	names := make([]string, len(lists))
	for i, list := range lists {
		names[i] = filepath.Join(filepath.Dir(path), filepath.FromSlash(list))
	}
	files := watch.New(names...)
	read := func() (*policy.Overrides, error) {
		o, err := file.ReadLists()
		if err == nil {
			err = engine.SetOverrides(o)
		}
		return o, err
	}
	broken := false
	again := func() {
		switch o, err := read(); {
		case err != nil:
			broken = true
			logger.Error("a list is broken or gone: the last good ones hold", "error", err)
		default:
			logger.Info("lists read anew", "entries", o.Len(), "mended", broken)
			broken = false
		}
	}
	// What has changed since the file was read is not seen as a change.
	if _, err := read(); err != nil {
		again()
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		files.Run(ctx, lookEvery, again)
	}()
	return func() { cancel(); <-ended }
}
