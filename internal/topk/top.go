package topk

import (
	"cmp"
	"slices"
)

// stride is how many rows are copied before others get their turn.
const stride = 32

// Top returns the n keys that were denied most, most first; among equals those
// that were near more often, then by text. Counts are those that are certain,
// so no key rises by its Error.
//
// Events are held up by the copy of at most 32 rows at a time. Each row is as
// it was at one instant of the call, and a key that was in the list all the
// time is there once.
func (l *List) Top(n int) []Row {
	if n <= 0 {
		return nil
	}
	rows := l.rows()
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Near, a.Near),
			cmp.Compare(a.Text, b.Text), slices.Compare(a.Key[:], b.Key[:]))
	})
	return slices.Clip(rows[:min(n, len(rows))])
}

// rows copies all rows, in no order.
func (l *List) rows() []Row {
	var rows []Row
	var turns uint64
	moved := false
	for done := false; !done; {
		rows = slices.Grow(rows, stride)
		l.mu.Lock()
		from := len(rows)
		if from > 0 && turns != l.turns {
			moved = true
		}
		turns = l.turns
		// Entries stay where they are, so places are rows.
		for i := from; i < min(from+stride, len(l.entries)); i++ {
			e := &l.entries[i]
			rows = append(rows, Row{
				Key: e.key, Text: string(e.text), Denied: e.denied, Near: e.near, Error: e.error,
				First: e.first, Last: e.last, Free: e.free, Trial: e.trial,
			})
		}
		done = len(rows) == len(l.entries)
		l.mu.Unlock()
	}
	if moved {
		// A key that left and came back elsewhere was copied twice; what was
		// copied last is the newer.
		slices.Reverse(rows)
		slices.SortStableFunc(rows, func(a, b Row) int { return slices.Compare(a.Key[:], b.Key[:]) })
		rows = slices.CompactFunc(rows, func(a, b Row) bool { return a.Key == b.Key })
	}
	return rows
}
