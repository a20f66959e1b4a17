package table

import "math"

// fill is how full a shard is when it holds as many keys as it may: four
// fifths, 31 bytes a key.
const fillNum, fillDen = 4, 5

// Put makes an entry for a tag that has none and returns its index. Past the
// cap it takes the place of the entry of its two sets that is nearest to new;
// call [Shard.Room] first where that must not be. It moves the shard if need
// be, which makes every other index void.
func (s *Shard) Put(tag uint64, now int64) int {
	due, _ := s.due()
	evict := s.held >= s.cap
	for {
		if i := s.place(due, tag, now, evict); i >= 0 {
			s.forgot(&s.entries[i])
			s.put(i, Entry{Tag: tag})
			return i
		}
		s.move(now, s.larger())
	}
}

// place finds a place for a new tag and counts it as held, or returns -1.
func (s *Shard) place(due Due, tag uint64, now int64, evict bool) int {
	if len(s.entries) == 0 {
		return -1
	}
	sets := [2]uint64{s.home(tag), 0}
	sets[1] = s.other(tag, sets[0])
	least, at := -1, int64(math.MaxInt64)
	for _, home := range sets {
		for k := range uint64(setSize) {
			i := int(home ^ k)
			if s.entries[i].Tag == unused {
				if evict {
					continue
				}
				s.held++
				return i
			}
			new := s.newAt(due, i, now)
			if new <= now {
				return i
			}
			if new < at || least < 0 {
				least, at = i, new
			}
		}
	}
	if evict {
		if least < 0 { // both sets are empty: any will do
			least = s.any()
		}
		s.evicted++
		s.Drop(least)
		return s.place(due, tag, now, false)
	}
	return s.displace(due, sets, now)
}

// any returns an entry that is held; there is one.
func (s *Shard) any() int {
	for s.entries[s.hand].Tag == unused {
		s.hand = (s.hand + 1) % int32(len(s.entries))
	}
	return int(s.hand)
}

// displace makes room in two full sets by moving one of their entries to its
// own other set.
func (s *Shard) displace(due Due, sets [2]uint64, now int64) int {
	for _, home := range sets {
		for k := range uint64(setSize) {
			from := home ^ k
			e := s.entries[from]
			to := s.home(e.Tag)
			if to/setSize == from/setSize {
				to = s.other(e.Tag, to)
			}
			if i := s.free(due, to, now); i >= 0 {
				if s.entries[i].Tag == unused {
					s.held++
				}
				s.forgot(&s.entries[i])
				s.put(i, e)
				s.put(int(from), Entry{})
				if s.stamps != nil {
					s.stamps[i] = s.stamps[from]
				}
				return int(from)
			}
		}
	}
	return -1
}

// free returns the first place of a set, from home on, that can be had.
func (s *Shard) free(due Due, home uint64, now int64) int {
	for k := range uint64(setSize) {
		i := int(home ^ k)
		s.probed++
		if s.entries[i].Tag == unused || s.newAt(due, i, now) <= now {
			return i
		}
	}
	return -1
}

// The sizes of a shard, in entries, go down from that at its cap by a third
// each time, so that the last step up ends at the right size.

func (s *Shard) full() int {
	return (int(s.cap)*fillDen + fillNum*setSize - 1) / (fillNum * setSize) * setSize
}

func smaller(n int) int { return max(setSize, (n/setSize*2+1)/3*setSize) }

// larger returns the next size up. Beyond the size of the cap, which is hardly
// ever needed (two full sets whose sixteen entries all have another full set,
// in a table with a fifth to spare), it goes up by an eighth.
func (s *Shard) larger() int {
	n := s.full()
	if len(s.entries) >= n {
		return len(s.entries) + (len(s.entries)/(8*setSize)+1)*setSize
	}
	for n > setSize && smaller(n) > len(s.entries) {
		n = smaller(n)
	}
	return n
}

// sizeFor returns the least size that n entries fill to two thirds.
func (s *Shard) sizeFor(n int) int {
	if n == 0 {
		return 0
	}
	size := s.full()
	for size > setSize && n*3 <= smaller(size)*2 {
		size = smaller(size)
	}
	return size
}

// move puts all entries that are not as new into n places. Should they not
// fit, it takes more.
func (s *Shard) move(now int64, n int) {
	due, _ := s.due()
	old, stamps := s.entries, s.stamps
	s.hand, s.left, s.earliest = 0, 0, math.MinInt64 // a new round
	s.table.moves.Add(1)
again:
	s.held = 0
	s.entries, s.marks, s.stamps = nil, nil, nil
	if n == 0 {
		return
	}
	s.entries = make([]Entry, n)
	s.marks = make([]uint64, n/setSize)
	if s.table.options.TTL > 0 {
		s.stamps = make([]int64, n)
	}
	for i, e := range old {
		if e.Tag == unused {
			continue
		}
		at := e.A
		if due != nil {
			at = due(e.A, e.B, now)
		}
		if stamps != nil {
			at = min(at, add(stamps[i], int64(s.table.options.TTL)))
		}
		if at <= now {
			s.forgot(&e)
			continue
		}
		p := s.place(due, e.Tag, now, false)
		if p < 0 {
			n += (n/(8*setSize) + 1) * setSize
			goto again
		}
		s.put(p, e)
		if stamps != nil {
			s.stamps[p] = stamps[i]
		}
		s.table.moved.Add(1)
	}
}
