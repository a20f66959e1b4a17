package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A probe's key is in the slot that it is to probe, whatever stands in that slot's key,
// and is one that the rights in the manual are for.
func TestProbeKeysAreInTheSlot(t *testing.T) {
	for _, prefix := range []string{DefaultPrefix, "{shop}:", "a{", "a}", "{}", ""} {
		s := &Store{options: options{prefix: prefix}}
		for _, space := range []string{"login", "{a}", "a}b", "{a", "{}", "}{", "}a{b}"} {
			key := prefix + space + ":AAAA"
			if probe := s.probeOf(key); slotOf(probe) != slotOf(key) || !strings.HasPrefix(probe, prefix+"probe") {
				t.Errorf("%s for %s", probe, key)
			}
		}
	}
}

// A mapped conn is a cluster whose client knows where some slots are, and of which one
// server answers.
type mapped struct {
	at    map[uint16]string
	works string
	asked []string // of the slots that were asked for, their servers
}

func (m *mapped) Lane(_ context.Context, slot uint16, _ string) (string, error) {
	if name, ok := m.at[slot]; ok {
		return name, nil
	}
	return "", errors.New("no server for the slot")
}
func (m *mapped) Slots() bool    { return true }
func (m *mapped) Punctual() bool { return true }
func (m *mapped) Eval(_ context.Context, calls []Call) {
	for i := range calls {
		name := m.at[slotOf(calls[i].Keys[0])]
		if m.asked = append(m.asked, name); name != m.works {
			calls[i].Err = errors.New("LOADING")
		}
	}
}

// A probe goes to the server that a lane is named after and to no other, and none is
// needed if all keys that failed there are elsewhere.
func TestProbesGoToTheServer(t *testing.T) {
	a, b, c := slotOf("sg1:a"), slotOf("sg1:b"), slotOf("sg1:c")
	for _, x := range []struct {
		at    map[uint16]string
		works string
		want  bool
		asked string
	}{
		{map[uint16]string{a: "one", b: "one", c: "one"}, "one", true, "one"},
		{map[uint16]string{a: "one", b: "one", c: "one"}, "two", false, "one"},
		{map[uint16]string{a: "two", b: "two", c: "one"}, "one", true, "one"},
		{map[uint16]string{a: "two", b: "one", c: "two"}, "two", false, "one"},
		{map[uint16]string{a: "two", b: "two", c: "two"}, "one", true, ""},
		{map[uint16]string{a: "two", b: "two"}, "two", false, ""},
		{map[uint16]string{a: "two", b: "two", c: "one"}, "two", false, "one"},
	} {
		m := &mapped{at: x.at, works: x.works}
		l := newLane(&Store{conn: m, options: options{prefix: DefaultPrefix}}, "one")
		for _, key := range []string{"sg1:long ago", "sg1:a", "sg1:b", "sg1:c"} {
			l.breaker.note(key)
		}
		for range 2 * tries {
			m.asked = nil
			got := l.answers(t.Context())
			if asked := strings.Join(m.asked, " "); got != x.want || asked != x.asked {
				t.Errorf("%v, of which %s works: %t, asked %q; want %t, %q", x.at, x.works, got, asked, x.want, x.asked)
			}
		}
	}
}

// Where a client does not say which server has a slot, as that of rueidis, each key that
// failed last is asked for in turn.
func TestProbesTakeTurns(t *testing.T) {
	keys := []string{"sg1:a", "sg1:b", "sg1:c"}
	var b breaker
	for _, key := range keys {
		b.note(key)
	}
	for range 2 {
		for i, key := range keys {
			if got := b.noted(); len(got) != tries || got[0] != key {
				t.Errorf("turn %d: %q first", i, got)
			}
		}
	}
}
