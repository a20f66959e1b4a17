package table

import "slices"

// Len returns how many shards t has.
func (t *Table) Len() int { return len(t.shards) }

// At returns the shard with an index below [Table.Len].
func (t *Table) At(i int) *Shard { return &t.shards[i] }

// AppendTo appends all entries of s, those included that are as new, and when
// each was last charged, if the table has a TTL.
func (s *Shard) AppendTo(entries []Entry, stamps []int64) ([]Entry, []int64) {
	n := len(entries)
	entries = slices.Grow(entries, len(s.entries))[:n+len(s.entries)]
	for i := range s.entries {
		if s.entries[i].Tag == unused {
			continue
		}
		entries[n] = s.entries[i]
		n++
		if s.stamps != nil {
			stamps = append(stamps, s.stamps[i])
		}
	}
	return entries[:n], stamps
}

// Load makes an entry out of a copied one, if its tag has none, and reports
// whether it did. Past the cap it drops nobody: what was kept of more keys
// than there may be now is kept until it is as new.
func (s *Shard) Load(e Entry, stamp int64) bool {
	if s.Lookup(e.Tag) >= 0 {
		return false
	}
	most := s.cap
	s.cap = max(most, s.held+1)
	i := s.Put(e.Tag, s.latest)
	s.cap = most
	s.entries[i].A, s.entries[i].B = e.A, e.B
	if s.stamps != nil {
		s.stamps[i] = stamp
	}
	s.left, s.earliest = 0, -1<<63 // nothing is known of when it is as new
	return true
}
