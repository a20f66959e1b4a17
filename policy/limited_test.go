package policy

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// onlyCaller returns the one caller that the rule lists.
func onlyCaller(t *testing.T, e *Engine, rule string) Caller {
	t.Helper()
	all := e.Limited(rule, math.MaxInt)
	if len(all) != 1 {
		t.Fatalf("rule %q lists %+v, want one caller", rule, all)
	}
	return all[0]
}

func TestCallersAreListedWhenDeniedOrNear(t *testing.T) {
	e := testEngine(t, testRule(t, "visitor", "1/s burst 20", "client.ip"))
	who := Attrs{"client.ip": "203.0.113.9"}
	for i := range 18 {
		decide(e, 0, who)
		if got := e.Limited("visitor", 10); got != nil {
			t.Fatalf("with %d of 20 left: %+v", 19-i, got)
		}
	}
	for range 2 {
		decide(e, time.Millisecond, who)
	}
	at := start.Add(time.Millisecond)
	want := Caller{Key: "client.ip=203.0.113.9", Near: 2, First: at, Last: at, FreeAt: at}
	if got := onlyCaller(t, e, "visitor"); got != want {
		t.Errorf("after two admissions that left 1 and 0 of 20: %+v, want %+v", got, want)
	}
	for range 5 {
		decide(e, 2*time.Millisecond, who)
	}
	want.Denied, want.Last, want.FreeAt = 5, start.Add(2*time.Millisecond), start.Add(time.Second)
	if got := onlyCaller(t, e, "visitor"); got != want {
		t.Errorf("after five denials: %+v, want %+v", got, want)
	}
	if v := decide(e, time.Second, who); !v.Allowed {
		t.Error("not free when the list says so")
	}
	want.Near, want.Last = 3, want.FreeAt
	if got := onlyCaller(t, e, "visitor"); got != want {
		t.Errorf("after another admission: %+v, want %+v", got, want)
	}
}

func TestWhatIsNear(t *testing.T) {
	for _, tt := range []struct {
		limit string
		cost  int64
		want  uint64 // near
	}{
		{"1/h burst 10", 9, 0}, // leaves 1, a tenth
		{"1/h burst 10", 10, 1},
		{"1/h burst 11", 9, 0},
		{"1/h burst 11", 10, 1},
		{"1/h burst 2", 2, 1},
		{"1/h burst 1", 1, 0}, // every admission would be
		{"10/h fixed", 10, 1},
		{"10 at once", 1, 0},
		{"1000/h burst 1000", 0, 0},
		{"unlimited", 1, 0},
		{"unlimited", math.MaxInt64, 0},
		{"1000000000/s burst 1000000000000000000", 1, 0},
	} {
		e := testEngine(t, testRule(t, "r", tt.limit))
		if v := decide(e, 0, nil, Cost(Requests, tt.cost)); !v.Allowed {
			t.Fatalf("%s: %d did not fit", tt.limit, tt.cost)
		}
		var near uint64
		for _, c := range e.Limited("r", 10) {
			near += c.Near
		}
		if near != tt.want {
			t.Errorf("%s, less %d: near %d times, want %d", tt.limit, tt.cost, near, tt.want)
		}
	}
}

func TestOnlyTheRuleThatDeniesLists(t *testing.T) {
	e := testEngine(t, testRule(t, "own", "1/h burst 20", "client.ip"), testRule(t, "shared", "1/h burst 19"))
	for range 19 + 7 {
		decide(e, 0, Attrs{"client.ip": "192.0.2.2"})
	}
	if got := onlyCaller(t, e, "own"); got.Near != 1 || got.Denied != 0 {
		t.Errorf("a rule lists %+v; it admitted one who was near, and what another refused is no admission", got)
	}
	if got := onlyCaller(t, e, "shared"); got.Key != "*" || got.Denied != 7 || got.Near != 1+1 {
		t.Errorf("%+v", got)
	}
}

func TestPeeksAreNotListed(t *testing.T) {
	r := testRule(t, "r", "1/h burst 10")
	r.Peek = Match{{Attribute{Kind: Method}, []string{"GET"}}}
	e := testEngine(t, r)
	decide(e, 0, Attrs{"method": "POST"}, Cost(Requests, 10))
	decide(e, 0, Attrs{"method": "GET"})
	decide(e, 0, Attrs{"method": "POST"}, Cost(Requests, 0))
	if got := onlyCaller(t, e, "r"); got.Near != 1 || got.Denied != 0 {
		t.Errorf("%+v, want the one admission", got)
	}
}

func TestTrialDenialsAreMarked(t *testing.T) {
	shadow := testRule(t, "shadow", "1/h burst 1", "user")
	shadow.Spare = 100
	closed := testRule(t, "closed", "")
	closed.Deny, closed.Spare = true, 100
	e := testEngine(t, shadow, closed, testRule(t, "real", "3/h burst 3", "user"))
	for range 5 {
		decide(e, 0, Attrs{"user": "a"})
	}
	for _, tt := range []struct {
		rule, key string
		trial     bool
		denied    uint64
		free      time.Time
	}{
		{"shadow", "user=a", true, 4, start.Add(time.Hour)},
		{"closed", "*", true, 5, time.Time{}},
		{"real", "user=a", false, 2, start.Add(20 * time.Minute)},
	} {
		c := onlyCaller(t, e, tt.rule)
		if c.Key != tt.key || c.Trial != tt.trial || c.Denied != tt.denied || !c.FreeAt.Equal(tt.free) {
			t.Errorf("%s: %+v, want %+v", tt.rule, c, tt)
		}
	}
}

func TestDenialsWithoutALimitAreListed(t *testing.T) {
	deny := testRule(t, "closed", "", "client.ip")
	deny.Deny = true
	deny.Match = Match{{Attribute{Kind: Path}, []string{"/admin"}}}
	known := testRule(t, "known", "1/h burst 9", "client.ip", "user")
	known.Missing = Refuse
	e := testEngine(t, deny, known)
	decide(e, time.Hour, Attrs{"path": "/admin", "client.ip": "192.0.2.1", "user": "a"})
	decide(e, time.Hour, Attrs{"path": "/", "client.ip": "192.0.2.1"})
	decide(e, time.Hour, Attrs{"path": "/", "client.ip": "192.0.2.1", "user": "a"}, Cost(Requests, 10)) // never fits
	at := start.Add(time.Hour)
	if got, want := onlyCaller(t, e, "closed"), (Caller{Key: "client.ip=192.0.2.1", Denied: 1, First: at, Last: at}); got != want {
		t.Errorf("denied: %+v, want %+v", got, want)
	}
	want := []Caller{
		{Key: "client.ip=192.0.2.1 user=-", Denied: 1, First: at, Last: at},
		{Key: "client.ip=192.0.2.1 user=a", Denied: 1, First: at, Last: at},
	}
	if got := e.Limited("known", 10); !reflect.DeepEqual(got, want) {
		t.Errorf("without a user, and with too much at once: %+v, want %+v", got, want)
	}
}

func TestTextOfKeys(t *testing.T) {
	long := strings.Repeat("a", 5000)
	for _, tt := range []struct {
		name  string
		key   []string
		attrs Attrs
		want  string
	}{
		{"no key", nil, nil, "*"},
		{"IPv4", []string{"client.ip"}, Attrs{"client.ip": "203.0.113.9"}, "client.ip=203.0.113.9"},
		{"IPv4 in IPv6", []string{"client.ip"}, Attrs{"client.ip": "::ffff:203.0.113.9"}, "client.ip=203.0.113.9"},
		{"IPv6", []string{"client.ip", "host"}, Attrs{"client.ip": "2001:db8::1:2", "host": "a.example"}, "client.ip=2001:db8::/64 host=a.example"},
		{"IPv6 by /56", []string{"client.ip/56"}, Attrs{"client.ip": "2001:db8:0:11ff::1"}, "client.ip=2001:db8:0:1100::/56"},
		{"no address", []string{"client.ip"}, Attrs{"client.ip": "@"}, "client.ip=@"},
		{"missing", []string{"user", "host"}, Attrs{"host": "a"}, "user=- host=a"},
		{"all missing", []string{"user else client.ip"}, nil, "user=-"},
		{"first of two", []string{"user else client.ip"}, Attrs{"user": "a", "client.ip": "192.0.2.1"}, "user=a"},
		{"second of two", []string{"user else client.ip"}, Attrs{"client.ip": "192.0.2.1"}, "client.ip=192.0.2.1"},
		{"normal form", []string{"attr.email lower trim"}, Attrs{"attr.email": "\t Ann@Example.com "}, "attr.email=ann@example.com"},
		{"a value that looks missing", []string{"user"}, Attrs{"user": "-"}, `user="-"`},
		{"empty", []string{"user"}, Attrs{"user": ""}, "user=-"},
		{"empty when trimmed", []string{"user trim else host"}, Attrs{"user": "\n", "host": "c"}, "host=c"},
		{"blanks", []string{"user", "host"}, Attrs{"user": "a host=b", "host": "c"}, `user="a host=b" host=c`},
		{"quotes", []string{"user"}, Attrs{"user": `"a"\`}, `user="\"a\"\\"`},
		{"controls", []string{"user"}, Attrs{"user": "a\r\n\x1b[31m\x00\x7f"}, `user="a\r\n\x1b[31m\x00\x7f"`},
		{"direction", []string{"user"}, Attrs{"user": "a\u202eb\u00a0"}, `user="a\u202eb\u00a0"`},
		{"no UTF-8", []string{"user"}, Attrs{"user": "a\xffb"}, `user="a\xffb"`},
		{"letters", []string{"user"}, Attrs{"user": "Jürgen=日本"}, "user=Jürgen=日本"},
		{"odd name", []string{"query.a=\x1b"}, Attrs{"query.a=\x1b": "b"}, `query."a=\x1b"=b`},
		{"long", []string{"user", "host"}, Attrs{"user": long, "host": "b"}, "user=" + long[:248] + "…"},
		{"long and quoted", []string{"user"}, Attrs{"user": strings.Repeat("\x01", 5000)}, `user="` + strings.Repeat(`\x01`, 61) + `\x0` + "…"},
	} {
		r := testRule(t, "r", "", tt.key...)
		r.Deny = true
		e := testEngine(t, r)
		decide(e, 0, tt.attrs)
		if got := onlyCaller(t, e, "r").Key; got != tt.want || len(got) > 256 {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestKeysCutToTheSameTextStayApart(t *testing.T) {
	e := testEngine(t, testRule(t, "r", "1/h burst 1", "user"))
	for _, end := range []string{"a", "b"} {
		for range 2 {
			decide(e, 0, Attrs{"user": strings.Repeat("x", 300) + end})
		}
	}
	got := e.Limited("r", 10)
	if len(got) != 2 || got[0].Key != got[1].Key || got[0].Denied != 1 || got[1].Denied != 1 {
		t.Errorf("%+v", got)
	}
}

func TestFaultsAreNotListedAsDenials(t *testing.T) {
	for name, tt := range map[string]struct {
		onFault OnFault
		want    []Caller
	}{
		"open":  {Open, nil},
		"shut":  {Shut, nil},
		"local": {Local, []Caller{{Key: "user=a", Denied: 6, Near: 1, First: start, Last: start, FreeAt: start.Add(time.Hour)}}},
	} {
		r := testRule(t, "r", "1/h burst 4", "user")
		r.OnFault = tt.onFault
		p, err := Compile([]Rule{r})
		if err != nil {
			t.Fatal(err)
		}
		e := NewEngine(p, brokenStore{spillgate.ErrUnavailable})
		for range 10 {
			decide(e, 0, Attrs{"user": "a"})
		}
		if got := e.Limited("r", 10); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestNewcomersAtTheCapAreListedThemselves(t *testing.T) {
	r := testRule(t, "r", "1/h burst 1", "user")
	r.MaxKeys = 1
	e := testEngine(t, r)
	for _, user := range []string{"a", "b", "c"} { // a keeps the table, b and c share a bucket
		decide(e, 0, Attrs{"user": user})
	}
	if got := onlyCaller(t, e, "r"); got.Key != "user=c" || got.Denied != 1 {
		t.Errorf("%+v", got)
	}
}

func TestHowManyAreListed(t *testing.T) {
	for _, tt := range []struct {
		options []EngineOption
		want    int
	}{
		{nil, DefaultTracked},
		{[]EngineOption{Track(10)}, 10},
		{[]EngineOption{Track(1)}, 1},
		{[]EngineOption{Track(0)}, 0},
		{[]EngineOption{Track(-1)}, 0},
		{[]EngineOption{Track(math.MaxInt)}, 1500},
	} {
		deny := testRule(t, "closed", "", "user")
		deny.Deny = true
		p, err := Compile([]Rule{deny})
		if err != nil {
			t.Fatal(err)
		}
		e := NewEngine(p, brokenStore{}, tt.options...)
		for range 3 {
			for i := range 500 {
				decide(e, 0, Attrs{"user": fmt.Sprint(i)})
			}
		}
		for i := range 1000 {
			decide(e, 0, Attrs{"user": fmt.Sprint("once ", i)})
		}
		got := e.Limited("closed", math.MaxInt)
		if len(got) != tt.want {
			t.Errorf("%d listed, want %d", len(got), tt.want)
		}
		for _, c := range got[:min(tt.want, 500)] {
			if tt.want >= DefaultTracked && (c.Denied != 3 || strings.Contains(c.Key, "once")) {
				t.Errorf("in a list of %d a flood stands before those who came more often: %+v", tt.want, c)
			}
		}
		if tt.want > 2 {
			if two := e.Limited("closed", 2); !reflect.DeepEqual(two, got[:2]) {
				t.Errorf("the first two are %+v, want %+v", two, got[:2])
			}
		}
		if e.Limited("closed", 0) != nil || e.Limited("closed", -1) != nil || e.Limited("other", 10) != nil {
			t.Error("callers out of nowhere")
		}
	}
}

func TestListedTimesAreTheClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testEngine(t, testRule(t, "r", "1/min burst 1", "user"))
		who := Attrs{"user": "a"}
		e.Decide(context.Background(), who)
		time.Sleep(time.Second)
		first := time.Now()
		e.Decide(context.Background(), who)
		time.Sleep(time.Second)
		e.Decide(context.Background(), who)
		c := onlyCaller(t, e, "r")
		if !c.First.Equal(first) || !c.Last.Equal(time.Now()) || !c.FreeAt.Equal(first.Add(59*time.Second)) {
			t.Errorf("%+v at %s", c, time.Now())
		}
		time.Sleep(time.Until(c.FreeAt) - 1)
		if v := e.Decide(context.Background(), who); v.Allowed {
			t.Error("free before the list says so")
		}
		time.Sleep(1 * time.Nanosecond)
		if v := e.Decide(context.Background(), who); !v.Allowed {
			t.Error("not free when the list says so")
		}
	})
}

func TestListedTimesSaturate(t *testing.T) {
	deny := testRule(t, "closed", "")
	deny.Deny = true
	for _, tt := range []struct{ at, want time.Time }{
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, math.MaxInt64)},
		{time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), time.Unix(0, math.MinInt64)},
		{time.Unix(-1, 5), time.Unix(-1, 5)},
	} {
		e := testEngine(t, deny)
		e.Decide(context.Background(), Attrs{}, At(tt.at))
		if c := onlyCaller(t, e, "closed"); !c.Last.Equal(tt.want) || !c.FreeAt.IsZero() {
			t.Errorf("at %s: %+v, want %s", tt.at, c, tt.want)
		}
	}
	e := testEngine(t, testRule(t, "r", "1/h burst 1"))
	for range 2 {
		e.Decide(context.Background(), Attrs{}, At(time.Unix(0, math.MaxInt64)))
	}
	if c := onlyCaller(t, e, "r"); c.Denied != 1 || !c.FreeAt.IsZero() {
		t.Errorf("denied at the end of time: %+v, want one who is never free", c)
	}
}

func TestListsUnderConcurrency(t *testing.T) {
	p, err := Compile([]Rule{testRule(t, "r", "1/h burst 10", "client.ip", "user")})
	if err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	defer m.Close()
	e := NewEngine(p, m, Track(64))
	var wg sync.WaitGroup
	const workers, each = 4, 2000
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				decide(e, 0, Attrs{"client.ip": "192.0.2.1", "user": fmt.Sprint(i % 8)})
				if i%100 == w {
					for _, c := range e.Limited("r", 100) {
						if !strings.HasPrefix(c.Key, "client.ip=192.0.2.1 user=") {
							t.Errorf("%q", c.Key)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	got := e.Limited("r", 100)
	if len(got) != 8 {
		t.Fatalf("%d callers, want 8", len(got))
	}
	for _, c := range got {
		if c.Denied != workers*each/8-10 || c.Near != 1 || c.Error != 0 {
			t.Errorf("%+v, want %d denials and one near", c, workers*each/8-10)
		}
	}
}

// stranger is a caller who comes from another address every time.
type stranger struct{ n uint64 }

func (s *stranger) AppendAttr(dst []byte, a Attribute) ([]byte, bool) {
	if a.Kind != User {
		return dst, false
	}
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[s.n>>shift&15])
	}
	return dst, true
}

// BenchmarkTracking compares decisions with and without lists: those that
// pass, which must cost the same, and denials of one caller and of a flood.
func BenchmarkTracking(b *testing.B) {
	deny := testRule(b, "r", "", "user")
	deny.Deny = true
	full := testRule(b, "r", "1/h burst 1", "user")
	full.MaxKeys = 4096
	for _, bb := range []struct {
		name  string
		rule  Rule
		flood bool
	}{
		{"allowed", testRule(b, "r", "1000000000/s burst 1000000000", "user"), false},
		{"denied", testRule(b, "r", "1/h burst 1", "user"), false},
		{"denied flood", full, true},
		{"denied flood by a rule without limit", deny, true},
	} {
		for _, k := range []int{0, DefaultTracked, MaxTracked} {
			b.Run(fmt.Sprintf("%s/track=%d", bb.name, k), func(b *testing.B) {
				p, err := Compile([]Rule{bb.rule})
				if err != nil {
					b.Fatal(err)
				}
				m := spillgate.NewMemory()
				defer m.Close()
				e, ctx := NewEngine(p, m, Track(k)), context.Background()
				s := &stranger{}
				var attrs Attributes = s
				for range 300_000 {
					if bb.flood {
						s.n++
					}
					e.Decide(ctx, attrs)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if bb.flood {
						s.n++
					}
					e.Decide(ctx, attrs)
				}
			})
		}
	}
}
