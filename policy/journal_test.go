package policy

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The first refusals of a second are logged one by one, and what is left out is
// counted, once.
func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		e := testEngine(t, testRule(t, "a", "1/h"), testRule(t, "b", "1/h"))
		j := e.Journal(slog.New(slog.NewTextHandler(&text, nil)))
		flood := func(rule string, n int) (lines int, told int64) {
			for range n {
				if suppressed, ok := j.Line(rule); ok {
					lines, told = lines+1, told+suppressed
				}
			}
			return lines, told
		}
		expect := func(what, rule string, n, lines int, told int64) {
			t.Helper()
			if gotLines, gotTold := flood(rule, n); gotLines != lines || gotTold != told {
				t.Errorf("%s: %d lines that tell of %d, want %d and %d", what, gotLines, gotTold, lines, told)
			}
		}
		expect("the first", "a", 29, 29, 0)
		expect("a flood", "a", 1000, JournalLines-29, 0)
		expect("another rule's", "b", 10, 1, 0)
		expect("no rule's", "", 10, 1, 0)
		time.Sleep(999 * time.Millisecond)
		expect("still the same second", "a", 1, 0, 0)
		time.Sleep(time.Millisecond)
		expect("the next second", "a", 2, 2, 930)
		expect("the next second, no rule's", "made up", 1, 1, 9)
		for range 3 {
			j.Fault("it broke", errors.New("why"), slog.Int("status", 502))
			j.Fault("nothing broke", nil)
		}
		for range 2 {
			e.Close()
		}
		got := strings.ReplaceAll(text.String(), "time=2000-01-01T00:00:01.000Z ", "")
		if want := `level=WARN msg="it broke" status=502 error=why suppressed=0
level=INFO msg="refusals were not logged" rule=b suppressed=9
level=INFO msg="faults were not logged" suppressed=2
`; !strings.Contains(got, want) || strings.Count(got, "\n") != 3 {
			t.Errorf("%s", text.String())
		}
	})
	var none *Journal
	none.Fault("it broke", errors.New("why"))
	none.Tell()
	if _, ok := none.Line("a"); ok {
		t.Error("a journal that is none has lines")
	}
}
