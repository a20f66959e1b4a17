package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestScriptsAgree plays random batches of charges of buckets to the script for
// most requests and to the one for all buckets, and wants the same replies and
// the same values for the same time, whatever is at the keys.
func TestScriptsAgree(t *testing.T) {
	client := redistest.Start(t).Client()
	ctx := context.Background()
	letters := map[byte]int{}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		var spaces []*spillgate.Space
		var meters [][2]*spillgate.Meter // the second is of another limit
		for i := range 3 {
			var two [2]*spillgate.Meter
			for j := range two {
				l := spillgate.Limit{Rate: 1 + rng.Int64N(1_000_003), Period: time.Duration(1 + rng.Int64N(int64(time.Hour))), Burst: 1 + rng.Int64N(6)}
				m, err := l.Meter()
				if err != nil {
					t.Fatal(err)
				}
				two[j] = m
			}
			sp, err := spillgate.NewSpace(fmt.Sprint("space", i), spillgate.SpaceOptions{})
			if err != nil {
				t.Fatal(err)
			}
			spaces, meters = append(spaces, sp), append(meters, two)
		}
		var stores [2]*Store
		for i := range stores {
			s, err := New(client, Prefix(fmt.Sprintf("%c%d:", 'a'+i, seed)))
			if err != nil {
				t.Fatal(err)
			}
			stores[i] = s
			t.Cleanup(func() { s.Close() })
		}
		at := time.Date(2030, 1, 1, 0, 0, 0, rng.IntN(1e9), time.UTC)
		for range 12 {
			at = at.Add(time.Duration(rng.Int64N(int64(time.Second))))
			requests := make([][]spillgate.Charge, 1+rng.IntN(12))
			for i := range requests {
				for _, k := range rng.Perm(3)[:1+rng.IntN(3)] {
					m := meters[k][0]
					if rng.IntN(15) == 0 {
						m = meters[k][1]
					}
					requests[i] = append(requests[i], spillgate.Charge{
						Space: spaces[k], Key: spillgate.Key{rng.Uint64N(4), 1}, Meter: m, Ask: spillgate.Ask{N: 1 + rng.Int64N(3), Keep: rng.Int64N(2)},
					})
				}
			}
			if rng.IntN(4) == 0 { // somebody else's key
				k := spillgate.Key{rng.Uint64N(4), 1}
				for _, s := range stores {
					key := s.key(spaces[0], k, spillgate.Bucket)
					client.Del(ctx, key)
					if seed%2 == 0 {
						client.RPush(ctx, key, "a list")
					} else {
						client.Set(ctx, key, string(appendLabel(nil, meters[0][0].Limit(), false))+"too long to be a state", time.Hour)
					}
				}
			}
			var replies [2]any
			for i, s := range stores {
				reply, keys := runBatch(t, client, s, [2]script{many, buckets}[i], requests, at)
				var values []string
				for _, key := range keys {
					text, err := client.Get(ctx, key).Result()
					values = append(values, fmt.Sprint(text, err != nil && err != redis.Nil))
				}
				replies[i] = []any{reply, values}
			}
			if !reflect.DeepEqual(replies[0], replies[1]) {
				t.Fatalf("seed %d, %d requests at %s:\n%q\n%q", seed, len(requests), at, replies[0], replies[1])
			}
			for _, c := range []byte(replies[0].([]any)[0].([]any)[2].(string)) {
				letters[c]++
			}
		}
	}
	if letters['A'] == 0 || letters['D'] == 0 || letters['C'] == 0 || letters['X'] == 0 {
		t.Errorf("not every answer was given: %v", letters)
	}
}

// runBatch sends requests in one call, of buckets or of the script that the store takes
// for them if by is many, at a given time or the server's, and returns the reply as [head.lua] has it and the keys.
func runBatch(t *testing.T, client *redis.Client, s *Store, by script, requests [][]spillgate.Charge, at time.Time) (reply []any, keys []string) {
	t.Helper()
	var b batch
	for _, cs := range requests {
		r, err := newRequest(cs, s.key)
		if err != nil {
			t.Fatal(err)
		}
		o := &op{request: r, given: !at.IsZero()}
		if o.given {
			o.now = spillgate.Instant(at.UnixNano())
		}
		o.expect(s)
		b.ops = append(b.ops, o)
	}
	b.group(false)
	g := &b.groups[0]
	c := g.call(!at.IsZero(), at.UnixNano(), s)
	if alone := len(b.ops) == 1 && len(b.ops[0].parts) == 1; len(b.groups) != 1 || alone != (c.Source == single.source) || !alone && c.Source != many.source {
		t.Fatalf("%d calls, of which the first is not for most requests", len(b.groups))
	}
	if by != many { // with the requests in the same order
		ops := g.ops
		g = new(batch).add()
		g.ops = ops
		c = Call{Args: g.encode(!at.IsZero(), at.UnixNano(), s), Keys: g.keys, Source: by.source}
	}
	c.SHA = ""
	reply, err := client.Do(context.Background(), c.Words()...).Slice()
	if err != nil {
		t.Fatal(err)
	}
	if c.Source != many.source {
		return reply, g.keys
	}
	states := reply[4:]
	if text, ok := reply[3].(string); ok {
		for _, k := range g.many.keys {
			if text[0] == gone {
				states, text = append(states, nil), text[1:]
			} else {
				states, text = append(states, text[:k.size]), text[k.size:]
			}
		}
	}
	return append(reply[:3:3], states...), g.keys
}

// TestManyEnds: the keys of that script end with the four seconds in which their states
// are new, by the server's clock, however they were written.
func TestManyEnds(t *testing.T) {
	client := redistest.Start(t).Client()
	s, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m, err := spillgate.Limit{Rate: 7, Period: time.Second, Burst: 500}.Meter()
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spillgate.NewSpace("ends", spillgate.SpaceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	again := 0 // the key was to end then already
	before := map[string]time.Duration{}
	for range 40 {
		var requests [][]spillgate.Charge
		for range 1 + rng.IntN(12) {
			requests = append(requests, []spillgate.Charge{{Space: sp, Key: spillgate.Key{rng.Uint64N(8)}, Meter: m, Ask: spillgate.Ask{N: 1}}})
		}
		_, keys := runBatch(t, client, s, [2]script{many, buckets}[rng.IntN(2)], requests, time.Time{})
		for _, key := range keys {
			text, err := client.Get(context.Background(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			state, _, err := readState(text, m)
			if err != nil {
				t.Fatal(err)
			}
			ends, err := client.PExpireTime(context.Background(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			if want := time.Duration(state.A).Truncate(4*time.Second) + 4*time.Second; ends != want {
				t.Errorf("%s ends at %s, want %s", key, ends, want)
			}
			if before[key] == ends {
				again++
			}
			before[key] = ends
		}
	}
	if again == 0 {
		t.Error("no key was written twice with one end")
	}
}
