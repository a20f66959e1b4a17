package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"time"

	"github.com/spillgate/spillgate/connlimit"
	"github.com/spillgate/spillgate/policy"
)

// Bounds of a report, in lines.
const (
	maxReportedKeys  = 100  // of who is limited by a rule, and of whom it blocks
	maxReportedLines = 2000 // in all
)

// A reportLine is one line of what SIGUSR1 asks for. Fields that are not its
// Report's are left out.
type reportLine struct {
	Report string    `json:"report"` // usage, connections, limited, blocked, end
	Time   time.Time `json:"time"`

	Rule string `json:"rule,omitempty"`
	Key  string `json:"key,omitempty"` // secrets as fingerprints

	*limitedLine
	*blockedLine
	*usageLine
	*connectionsLine

	Lines   *int `json:"lines,omitempty"`    // of the report, without this one
	LeftOut *int `json:"left_out,omitempty"` // that were too many
}

type limitedLine struct {
	Denied uint64     `json:"denied"`
	Near   uint64     `json:"near"`
	Error  uint64     `json:"error"`
	Trial  bool       `json:"trial"`
	First  time.Time  `json:"first"`
	Last   time.Time  `json:"last"`
	FreeAt *time.Time `json:"free_at,omitempty"` // left out if no wait helps
}

type blockedLine struct {
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	Times   int64     `json:"times,omitempty"` // 0 if it is not known
	Refused uint64    `json:"refused"`
}

type usageLine struct {
	Usage    string `json:"usage"`
	Unit     string `json:"unit"`
	Told     int64  `json:"told"`
	Untold   int64  `json:"untold"`
	Absurd   int64  `json:"absurd"`
	Opaque   int64  `json:"opaque"`
	Cut      int64  `json:"cut"`
	Free     int64  `json:"free"`
	Reserved int64  `json:"reserved"`
	Settled  int64  `json:"settled"`
	Over     int64  `json:"over"`
	Back     int64  `json:"back"`
}

// reportTo writes who is limited and blocked, and how usage fared and connections, if
// these are limited, as lines of JSON.
func reportTo(w io.Writer, e *policy.Engine, connections *connlimit.Listener, now time.Time) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	lines, leftOut := 0, 0
	var err error
	write := func(l reportLine) {
		if lines == maxReportedLines {
			leftOut++
		} else if err == nil {
			lines++
			l.Time = now
			err = enc.Encode(l)
		}
	}
	for _, u := range usageLines(e) {
		write(reportLine{Report: "usage", usageLine: &u})
	}
	if c := connectionsNow(connections); c != nil {
		write(reportLine{Report: "connections", connectionsLine: c})
	}
	for _, rule := range ruleNames(e) {
		blocked := e.Blocked(rule, math.MaxInt)
		leftOut += max(0, len(blocked)-maxReportedKeys)
		for _, b := range blocked[:min(len(blocked), maxReportedKeys)] {
			write(reportLine{Report: "blocked", Rule: rule, Key: b.Key, blockedLine: &blockedLine{b.Since, b.Until, b.Times, b.Refused}})
		}
		limited := e.Limited(rule, policy.MaxTracked)
		leftOut += max(0, len(limited)-maxReportedKeys)
		for _, c := range limited[:min(len(limited), maxReportedKeys)] {
			l := &limitedLine{Denied: c.Denied, Near: c.Near, Error: c.Error, Trial: c.Trial, First: c.First, Last: c.Last}
			if !c.FreeAt.IsZero() {
				l.FreeAt = &c.FreeAt
			}
			write(reportLine{Report: "limited", Rule: rule, Key: c.Key, limitedLine: l})
		}
	}
	if err != nil {
		return err
	}
	return enc.Encode(reportLine{Report: "end", Time: now, Lines: &lines, LeftOut: &leftOut})
}

// ruleNames are those of the rules of e, and that by which overrides refuse
// that name no rule.
func ruleNames(e *policy.Engine) (out []string) {
	for _, r := range e.Policy().Rules() {
		out = append(out, r.Name)
	}
	return append(out, "overrides")
}

func usageLines(e *policy.Engine) (out []usageLine) {
	for i, t := range e.UsageTotals() {
		u := &e.Policy().Usage()[i]
		out = append(out, usageLine{
			u.Source, usageUnit(u), t.Told, t.Untold, t.Absurd, t.Opaque, t.Cut, t.Free, t.Reserved, t.Settled(), t.Over, t.Back,
		})
	}
	return out
}

// reportOnSignal writes a report to w whenever one is asked for, until the
// function that it returns is called.
func reportOnSignal(w io.Writer, e *policy.Engine, connections *connlimit.Listener, logger *slog.Logger) (stop func()) {
	if len(reportSignals) == 0 {
		return func() {}
	}
	asked, ended, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(asked, reportSignals...)
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-asked:
				if err := reportTo(w, e, connections, time.Now()); err != nil {
					logger.Error("the report that was asked for was not written", "error", err)
				}
			}
		}
	}()
	return func() { signal.Stop(asked); close(done); <-ended }
}

// logTotals says at a stop what became of usage and whom penalties block.
func logTotals(logger *slog.Logger, e *policy.Engine) {
	for _, u := range usageLines(e) {
		logger.Info("usage of calls", "usage", u.Usage, "unit", u.Unit,
			"told", u.Told, "untold", u.Untold, "absurd", u.Absurd, "opaque", u.Opaque, "cut", u.Cut, "free", u.Free,
			"reserved", u.Reserved, "settled", u.Settled, "over", u.Over, "back", u.Back)
	}
	for _, r := range e.Policy().Rules() {
		if r.Penalty != (policy.Penalty{}) {
			logger.Info("keys blocked by a penalty", "rule", r.Name, "keys", len(e.Blocked(r.Name, math.MaxInt)))
		}
	}
}
