package policy

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// JournalLines is how many refusals of one second a [Journal] lets into the log,
// of all rules together; beyond them only the first of each rule.
const JournalLines = 100

// A Journal bounds what fronts log of refusals and faults, so that a flood of
// them is none of log lines, and counts what is left out. It has no goroutine:
// what was left out is told with the rule's next line, or by [Journal.Tell]. A nil
// Journal writes nothing. It is safe for concurrent use.
type Journal struct {
	log    *slog.Logger
	start  time.Time
	budget atomic.Int64 // the second, and how many lines it had
	order  []string     // of the rules
	rules  map[string]*sampler
	faults sampler
}

// A sampler knows of one kind of line.
type sampler struct {
	second  atomic.Int64 // of the last line, from 1 on; 0 if there was none
	skipped atomic.Int64 // since that
}

// NewJournal returns the journal of a front whose rules have these names, nil if
// log is.
func NewJournal(log *slog.Logger, rules ...string) *Journal {
	if log == nil {
		return nil
	}
	j := &Journal{log: log, start: time.Now(), rules: map[string]*sampler{}}
	j.order = append(append(j.order, rules...), "") // what no rule did, too
	for _, name := range j.order {
		j.rules[name] = &sampler{}
	}
	return j
}

// Journal returns a journal for a front of e that logs to log, nil if that is nil.
// [Engine.Close] calls its Tell.
func (e *Engine) Journal(log *slog.Logger) *Journal {
	names := make([]string, len(e.policy.plain))
	for i := range names {
		names[i] = e.policy.plain[i].Name
	}
	j := NewJournal(log, names...)
	if j != nil {
		e.closing.Lock()
		defer e.closing.Unlock()
		e.journals = append(e.journals, j)
	}
	return j
}

// now returns which second of the journal this is.
func (j *Journal) now() int64 { return int64(time.Since(j.start)/time.Second) + 1 }

const journalBits = 7 // hold JournalLines

// room reports whether the second has room for one more line, and takes it.
func (j *Journal) room(second int64) bool {
	for {
		old := j.budget.Load()
		lines := old & (1<<journalBits - 1)
		if old>>journalBits != second {
			lines = 0
		}
		if lines >= JournalLines {
			return false
		}
		if j.budget.CompareAndSwap(old, second<<journalBits|(lines+1)) {
			return true
		}
	}
}

// Line reports whether a refusal by that rule, "" for none, may be logged now,
// and how many of it were not since the one before.
func (j *Journal) Line(rule string) (suppressed int64, ok bool) {
	if j == nil {
		return 0, false
	}
	s := j.rules[rule]
	if s == nil {
		s = j.rules[""]
	}
	second := j.now()
	if first := s.second.Swap(second) != second; !j.room(second) && !first {
		s.skipped.Add(1)
		return 0, false
	}
	return s.skipped.Swap(0), true
}

// Fault logs, once a second at most, that err happened, and what else is known of it.
func (j *Journal) Fault(what string, err error, known ...slog.Attr) {
	if j == nil || err == nil {
		return
	}
	if second := j.now(); j.faults.second.Swap(second) == second {
		j.faults.skipped.Add(1)
		return
	}
	j.log.LogAttrs(context.Background(), slog.LevelWarn, what, append(known, slog.Any("error", err), slog.Int64("suppressed", j.faults.skipped.Swap(0)))...)
}

// Tell logs what was left out and is not told yet: a line for each rule.
func (j *Journal) Tell() {
	if j == nil {
		return
	}
	tell := func(s *sampler, what string, attrs ...slog.Attr) {
		if n := s.skipped.Swap(0); n > 0 {
			j.log.LogAttrs(context.Background(), slog.LevelInfo, what, append(attrs, slog.Int64("suppressed", n))...)
		}
	}
	for _, name := range j.order {
		tell(j.rules[name], "refusals were not logged", slog.String("rule", name))
	}
	tell(&j.faults, "faults were not logged")
}
