package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestForeignKeys puts what is none of ours at the key of every algorithm: a
// charge and a correction are an error that names that key and no other, nothing
// of the request is taken, and what is there stays as it was.
func TestForeignKeys(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Client())
	texts := map[string]string{
		"a word": "x", "a number": "12345", "a text": "text of somebody else", "JSON": `{"a": [1, 2, 3], "b": "` + strings.Repeat("c", 80) + `"}`,
		"an id": "0190163d-8694-739b-aea5-966c26f8ad91", "nulls": strings.Repeat("\x00", 90), "a long text": strings.Repeat("All work and no play. ", 100),
		"letters of a state's length": strings.Repeat("1", 27), "a head's length": strings.Repeat("D", 64),
	}
	for _, limit := range []string{"1/h burst 3", "3/h queue 3", "0/s burst 3", "3/h fixed", "3/h sliding", "3/h log", "3 at once"} {
		for name, ttl := range map[string]time.Duration{"": 0, " with ttl": time.Hour} {
			if strings.HasPrefix(limit, "0/s") && ttl == 0 {
				continue
			}
			t.Run(limit+name, func(t *testing.T) {
				c, other := chargeTTL(t, limit, ttl), charge(t, "1/h burst 3")
				mustTake(t, s, c)
				key := fmt.Sprint(onlyKey(t, server, c))
				ours := fmt.Sprint(server.Do("get", key))
				put := map[string][]any{
					"a list": {"rpush", key, "x"}, "a hash": {"hset", key, "a", "b"}, "a set": {"sadd", key, "x"},
					"one byte more": {"set", key, ours[:min(len(ours), 40)] + "!"}, "one byte less": {"set", key, ours[:min(len(ours), 40)-1]},
				}
				for what, text := range texts {
					put[what] = []any{"set", key, text}
				}
				for what, command := range put {
					server.Do("del", key)
					server.Do(command...)
					was := server.Do("dump", key)
					fails := func(how string, err error) {
						if !errors.Is(err, redisstore.ErrType) || !errors.Is(err, spillgate.ErrUnavailable) || !strings.Contains(err.Error(), "\""+key+"\"") || strings.Contains(err.Error(), other.Space.Name()+":") {
							t.Errorf("%s, %s: error %v, want it to name the key", what, how, err)
						}
						if got := server.Do("dump", key); !reflect.DeepEqual(got, was) {
							t.Errorf("%s, %s: it is now %q", what, how, got)
						}
					}
					_, err := take(s, c)
					fails("alone", err)
					fails("with another", s.Take(context.Background(), time.Time{}, []spillgate.Charge{other, c}, make([]spillgate.Decision, 2)))
					for _, delta := range []int64{-1, 1} {
						back := spillgate.Correction{Space: c.Space, Key: c.Key, Meter: c.Meter, Delta: delta, At: 1, Slot: 1}
						fails(fmt.Sprintf("settled by %+d", delta), s.Settle(context.Background(), time.Time{}, []spillgate.Correction{back}))
					}
				}
				other.N = 0
				if d := mustTake(t, s, other); d.Remaining != 3 {
					t.Errorf("the other charge was taken: %+v", d)
				}
			})
		}
	}
	if st := s.Stats(); st.Opened != 0 || st.Faults[redisstore.WrongType] == 0 {
		t.Errorf("%+v; want faults of a wrong type, and a server that answers", st)
	}
}

// TestOtherAlgorithm charges a key under one limit and then under another one of
// any algorithm, as after a change of the configuration: each algorithm counts by
// itself and gives the answers of a memory of its own, and no state of ours counts
// as foreign.
func TestOtherAlgorithm(t *testing.T) {
	s := open(t, redistest.Start(t).Client())
	limits := []string{
		"1/h burst 3", "1000000/7h burst 300", "3/h queue 3", "0/s burst 3", "3/h fixed", "7/90m fixed", "3/calendar day in Europe/Berlin",
		"3/h sliding", "300/90m sliding", "3/h log", "3/90m log", "3 at once", "2 at once for 1m",
	}
	for _, ttl := range []time.Duration{0, time.Hour} {
		for _, first := range limits {
			for _, then := range limits {
				if ttl == 0 && (strings.HasPrefix(first, "0/s") || strings.HasPrefix(then, "0/s")) {
					continue
				}
				memories := map[spillgate.Algorithm]*spillgate.Memory{}
				c := chargeTTL(t, first, ttl)
				for i, limit := range []string{first, then, then, first} {
					c.Meter = charge(t, limit).Meter
					kind := c.Meter.Limit().Algorithm
					if memories[kind] == nil {
						memories[kind] = spillgate.NewMemory()
					}
					m := memories[kind]
					at := time.Date(2030, 1, 1, 0, 0, i, 0, time.UTC)
					got, want := make([]spillgate.Decision, 1), make([]spillgate.Decision, 1)
					if err := s.Take(context.Background(), at, []spillgate.Charge{c}, got); err != nil {
						t.Fatalf("%s, then %s, ttl %s, take %d: %v", first, then, ttl, i, err)
					}
					if err := m.Take(context.Background(), at, []spillgate.Charge{c}, want); err != nil {
						t.Fatal(err)
					}
					if got[0].Slot, want[0].Slot = 0, 0; got[0] != want[0] {
						t.Errorf("%s, then %s, ttl %s, take %d:\n%+v, in memory\n%+v", first, then, ttl, i, got[0], want[0])
					}
				}
			}
		}
	}
}
