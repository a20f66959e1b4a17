package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// A key whose limit changes keeps what it has used, in both directions.
func TestOtherLimitBeginsAndEnds(t *testing.T) {
	rule := testRule(t, "api", "10/s burst 10", "user")
	until := start.Add(time.Hour)
	for _, tt := range []struct {
		limit         string
		used          int64
		begin, second int64 // left: at its first instant, a second after a first request
	}{
		{"100/s burst 100", 0, 100, 100},
		{"100/s burst 100", 7, 3, 100},
		{"100/s burst 100 fill", 7, 100, 100},
		{"1/s burst 4", 0, 4, 4},
		{"1/s burst 4", 9, 1, 1},
	} {
		name := fmt.Sprintf("%s after %d", tt.limit, tt.used)
		p, err := Compile([]Rule{rule})
		if err != nil {
			t.Fatal(err)
		}
		m := spillgate.NewMemory()
		defer m.Close()
		e := NewEngine(p, m)
		who := Attrs{"user": "acme"}
		left := func(at time.Duration) int64 {
			v := decide(e, at, who, Cost(Requests, 0))
			return v.Outcome(0).Decision.Remaining
		}
		if tt.used > 0 {
			decide(e, 0, who, Cost(Requests, tt.used))
		}
		with, err := p.WithOverrides([]Override{{Rules: []string{"api"}, Match: on(t, "user", "acme"), Limit: limitOf(t, tt.limit), Until: until}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.SetOverrides(with.Overrides()); err != nil {
			t.Fatal(err)
		}
		if got := left(0); got != tt.begin {
			t.Errorf("%s: %d left when it begins, want %d", name, got, tt.begin)
		}
		decide(e, 0, who)
		if got := left(time.Second); got != tt.second {
			t.Errorf("%s: %d left after a second, want %d", name, got, tt.second)
		}
		if v := decide(e, 0, Attrs{"user": "other"}, Cost(Requests, 0)); v.Outcome(0).Decision.Limit != 10 {
			t.Errorf("%s: of another key: %+v", name, v.Outcome(0).Decision)
		}
		// At its end: as much as is left, at most the rule's own burst.
		v := decide(e, time.Second, who)
		if o := v.Outcome(0); o.Limit() != limitOf(t, tt.limit) || o.Override == nil {
			t.Errorf("%s: decided by %s", name, o.Limit())
		}
		if err := v.GiveBack(); err != nil {
			t.Fatal(err)
		}
		if err := e.SetOverrides(nil); err != nil {
			t.Fatal(err)
		}
		if got := left(time.Second); got > 10 {
			t.Errorf("%s: %d left of 10 when it ends", name, got)
		}
		if got := left(2 * time.Hour); got != 10 {
			t.Errorf("%s: %d left long after, want all", name, got)
		}
	}
}

// What a key has used under one limit is settled at that: an hour of one a
// second is not an hour of a hundred a second.
func TestOtherLimitEarnsAtItsOwnRate(t *testing.T) {
	rule := testRule(t, "api", "1/s burst 100", "user")
	e := overridden(t, []Override{{Rules: []string{"api"}, Match: on(t, "user", "acme"), Limit: limitOf(t, "10/s burst 100"), Until: start.Add(5 * time.Second)}}, rule)
	who := Attrs{"user": "acme"}
	if v := decide(e, 0, who, Cost(Requests, 100)); !v.Allowed {
		t.Fatal("the first burst")
	}
	if v := decide(e, 4*time.Second, who, Cost(Requests, 40)); !v.Allowed || v.Outcome(0).Decision.Remaining != 0 {
		t.Errorf("4 s at 10 a second: %+v", v.Outcome(0).Decision)
	}
	// From 4 s to 5 s nobody asked; the key settles when it comes back.
	if v := decide(e, 5*time.Second, who, Cost(Requests, 0)); v.Outcome(0).Decision.Remaining != 10 || v.Outcome(0).Override != nil {
		t.Errorf("at the end: %+v", v.Outcome(0).Decision)
	}
}

// An override may set the very limit that the rule had before it was changed:
// its charges go by it, not by what came after it.
func TestOtherLimitThatTheRuleHadBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, err := Compile([]Rule{testRule(t, "api", "2/h burst 2", "user")})
		if err != nil {
			t.Fatal(err)
		}
		m := spillgate.NewMemory()
		defer m.Close()
		NewEngine(before, m).Decide(context.Background(), Attrs{"user": "x"})
		file := &strings.Builder{}
		if err := m.Snapshot(file); err != nil {
			t.Fatal(err)
		}
		after, err := Compile([]Rule{testRule(t, "api", "9/h burst 9", "user")})
		if err != nil {
			t.Fatal(err)
		}
		if after, err = after.WithOverrides([]Override{{Rules: []string{"api"}, Match: on(t, "user", "acme"), Limit: limitOf(t, "2/h burst 2")}}); err != nil {
			t.Fatal(err)
		}
		again := spillgate.NewMemory()
		defer again.Close()
		if err := again.Restore(strings.NewReader(file.String())); err != nil {
			t.Fatal(err)
		}
		e := NewEngine(after, again)
		passes := 0
		for range 20 {
			v := e.Decide(context.Background(), Attrs{"user": "acme"})
			if v.Allowed {
				passes++
			}
		}
		if passes != 2 {
			t.Errorf("%d of 20 pass, want 2", passes)
		}
	})
}

func TestOverridesThatSayNothing(t *testing.T) {
	rules := []Rule{testRule(t, "bucket", "10/s", "client.ip"), testRule(t, "daily", "10/calendar day", "client.ip"), testRule(t, "slots", "10 at once", "client.ip"), testRule(t, "closed", "", "client.ip")}
	rules[0].Cost, rules[3].Deny = 5, true
	p, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	who := on(t, "client.ip", "192.0.2.1")
	bucket := []string{"bucket"}
	for name, tt := range map[string]struct {
		o     Override
		field string
		want  string
	}{
		"nothing":                {Override{Match: who}, "", "says nothing"},
		"two things":             {Override{Match: who, Deny: true, Exempt: true}, "", "more than one"},
		"of nobody":              {Override{Deny: true}, "match", "for everybody"},
		"an unknown rule":        {Override{Match: who, Deny: true, Rules: []string{"buckets"}}, "rule", `"buckets"`},
		"an unknown group":       {Override{Match: who, Deny: true, Groups: []string{"g"}}, "group", `"g"`},
		"a limit of all":         {Override{Match: who, Limit: limitOf(t, "1/s")}, "limit", "which rule"},
		"unlimited":              {Override{Match: who, Rules: bucket, Limit: limitOf(t, "unlimited")}, "limit", "exempt: true"},
		"of another kind":        {Override{Match: who, Rules: bucket, Limit: limitOf(t, "10/s fixed")}, "limit", "another kind"},
		"by another clock":       {Override{Match: who, Rules: []string{"daily"}, Limit: limitOf(t, "10/d fixed")}, "limit", "another kind"},
		"of a rule that denies":  {Override{Match: who, Rules: []string{"closed"}, Limit: limitOf(t, "10/s")}, "limit", "denies"},
		"admits nothing":         {Override{Match: who, Rules: bucket, Limit: limitOf(t, "10/s burst 0")}, "limit", "admits nothing"},
		"never frees":            {Override{Match: who, Rules: bucket, Limit: limitOf(t, "0/s burst 9")}, "limit", "ttl"},
		"less than a request":    {Override{Match: who, Rules: bucket, Limit: limitOf(t, "4/s")}, "limit", "costs 5"},
		"no limit at all":        {Override{Match: who, Rules: bucket, Limit: spillgate.Limit{Rate: 5, Burst: 9}}, "limit", "period"},
		"a bad match":            {Override{Match: on(t, "method", "post"), Deny: true}, "match", "upper case"},
		"a list of paths":        {Override{List: "x", Key: mustPart(t, "path"), Deny: true}, "key", "no paths"},
		"a list of methods":      {Override{List: "x", Key: mustPart(t, "method"), Deny: true}, "key", "no methods"},
		"a list of either":       {Override{List: "x", Key: mustPart(t, "user else client.ip"), Deny: true}, "key", "one attribute"},
		"a list that is grouped": {Override{List: "x", Key: mustPart(t, "client.ip/56"), Deny: true}, "key", "grouped"},
		"a list without values":  {Override{List: "x", Key: mustPart(t, "user"), Deny: true, Entries: []Entry{{Line: 3}}}, "list", "line 3"},
		"a list without nets":    {Override{List: "x", Deny: true, Entries: []Entry{{Value: "a", Line: 3}}}, "list", "line 3"},
		"a long reason":          {Override{Match: who, Deny: true, Reason: strings.Repeat("x", 257)}, "reason", "257 bytes"},
	} {
		_, err := p.WithOverrides([]Override{{Match: who, Exempt: true}, tt.o})
		var wrong *OverrideError
		if !errors.As(err, &wrong) || wrong.Field != tt.field || wrong.Index != 1 || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, ErrRule) {
			t.Errorf("%s: error %v, want one about %s: %q", name, err, tt.field, tt.want)
		}
	}
	if _, err := Compile([]Rule{testRule(t, everyRule, "1/s")}); err == nil {
		t.Error("a rule may be named as overrides are")
	}
}
