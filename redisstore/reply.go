package redisstore

import (
	"fmt"

	"github.com/spillgate/spillgate"
)

// A scriptReply is a reply of the script, taken apart; head.lua says what is
// in it.
type scriptReply struct {
	now     spillgate.Instant
	letters string
	raws    []any
	tallies []any
}

// read takes words apart, the reply to so many requests on so many keys of
// plain numbers.
func (r *scriptReply) read(words []any, requests, plain int) error {
	if len(words) < 3+plain {
		return fmt.Errorf("a reply of %d words where there should be %d", len(words), 3+plain)
	}
	s, ok1 := words[0].(int64)
	n, ok2 := words[1].(int64)
	letters, ok3 := words[2].(string)
	if !ok1 || !ok2 || !ok3 || len(letters) != requests {
		return fmt.Errorf("a reply that begins with %v", words[:3])
	}
	r.now, r.letters = join(s, n), letters
	r.raws, r.tallies = words[3:3+plain], words[3+plain:]
	return nil
}

// tally takes the next tally.
func (r *scriptReply) tally(t *tally) bool {
	if len(r.tallies) < 8 {
		return false
	}
	var n [8]int64
	for i := range n {
		v, ok := r.tallies[i].(int64)
		if !ok {
			return false
		}
		n[i] = v
	}
	r.tallies = r.tallies[8:]
	*t = tally{used: n[0], newest: join(n[1], n[2]), leave: join(n[3], n[4]), any: n[2] >= 0, slot: uint64(n[5]), charged: join(n[6], n[7])}
	return true
}
