package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// An oddConn is a server that answers whatever a fuzzer thinks of.
type oddConn struct{ replies []byte }

func (c *oddConn) Lane(context.Context, uint16, string) (string, error) { return "", nil }
func (c *oddConn) Slots() bool                                          { return false }
func (c *oddConn) Punctual() bool                                       { return true }

func (c *oddConn) Eval(_ context.Context, calls []Call) {
	for i := range calls {
		if len(c.replies) == 0 {
			calls[i].Err = errors.New("ERR nothing more to say")
			continue
		}
		n := int(c.next()) % 32
		for range n {
			calls[i].Reply = append(calls[i].Reply, c.word())
		}
	}
}

func (c *oddConn) next() (b byte) {
	if len(c.replies) > 0 {
		b, c.replies = c.replies[0], c.replies[1:]
	}
	return b
}

// word returns what a server, or something in its place, may send as one part.
func (c *oddConn) word() any {
	switch b := c.next(); b % 8 {
	case 0:
		var long [8]byte
		for i := range long {
			long[i] = c.next()
		}
		return int64(binary.BigEndian.Uint64(long[:]))
	case 1:
		return int64(b >> 3)
	case 2:
		n := min(int(c.next()), len(c.replies))
		text := string(c.replies[:n])
		c.replies = c.replies[n:]
		return text
	case 3:
		return nil
	case 4:
		return float64(b)
	case 5:
		return string("ACDWX"[b>>3%5])
	case 6:
		return int64(1_900_000_000) + int64(b)
	default:
		return []any{int64(b), nil}
	}
}

// FuzzReply has a store decide by replies that no server of ours gives: there is an
// error, or a decision that the limit allows, and never a panic.
func FuzzReply(f *testing.F) {
	now := []byte{3, 6, 1, 5}                                  // the time, and a letter
	f.Add(uint8(0), []byte{})                                  // no answer
	f.Add(uint8(0), append(now, 3))                            // "A", no state
	f.Add(uint8(1), append(now, 13, 0, 0, 0, 0, 0, 0, 0, 255)) // "C", a number for a state
	f.Add(uint8(3), []byte{11, 6, 1, 5, 9, 6, 1, 6, 1, 0, 6, 1})
	f.Add(uint8(4), []byte{11, 6, 1, 5, 9, 6, 1, 6, 1, 17, 6, 1})
	f.Add(uint8(9), append([]byte{5, 6, 1, 2, 2, 'A', 'A', 3, 3}, now...))
	limits := []string{"5/h burst 5", "5/h queue 5", "5/h fixed", "5/h sliding", "5/h log", "5 at once"}
	f.Fuzz(func(t *testing.T, which uint8, replies []byte) {
		s, err := Open(&oddConn{replies}, Budget(time.Minute), Remember(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		cs := make([]spillgate.Charge, 1+which/6%3)
		for i := range cs {
			cs[i] = budgetCharge(t, uint64(i))
			m, err := mustLimit(limits[(int(which)+i)%len(limits)]).Meter()
			if err != nil {
				t.Fatal(err)
			}
			cs[i].Meter = m
		}
		for range 2 { // the second may be decided by what is remembered
			out := make([]spillgate.Decision, len(cs))
			if err := s.Take(context.Background(), time.Time{}, cs, out); err != nil {
				continue
			}
			for i, d := range out {
				if d.Taken < 0 || d.Taken > cs[i].N || d.Remaining < 0 || d.Remaining > d.Limit || d.Allowed != (d.Reason == spillgate.Granted) {
					t.Errorf("charge %d under %s: %+v", i, cs[i].Meter.Limit(), d)
				}
			}
		}
		_ = s.Settle(context.Background(), time.Time{}, []spillgate.Correction{{Space: cs[0].Space, Key: cs[0].Key, Meter: cs[0].Meter, Delta: -1}})
	})
}
