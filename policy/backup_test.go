package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

func TestBackups(t *testing.T) {
	paid := Match{{Attribute{Kind: Tenant}, []string{"paid"}}}
	backed := func(name string) Rule {
		r := testRule(t, name, "1/h burst 1", "client.ip")
		r.Backup = &Backup{"http://" + name + ".test", paid}
		return r
	}
	plain := testRule(t, "plain", "1/h burst 1", "client.ip")
	denies := testRule(t, "denies", "", "client.ip")
	denies.Deny = true
	for name, c := range map[string]struct {
		rules  []Rule
		tenant string
		want   string
	}{
		"preferred":            {[]Rule{backed("a")}, "paid", "http://a.test"},
		"not preferred":        {[]Rule{backed("a")}, "free", ""},
		"the first's":          {[]Rule{backed("b"), backed("a")}, "paid", "http://b.test"},
		"one refuses outright": {[]Rule{backed("a"), plain}, "paid", ""},
		"one denies":           {[]Rule{backed("a"), denies}, "paid", ""},
	} {
		e := testEngine(t, c.rules...)
		attrs := Attrs{"client.ip": "203.0.113.7", "tenant": c.tenant}
		if v := e.Decide(context.Background(), attrs, UseBackup()); v.Allowed && v.Backup() != nil {
			t.Errorf("%s: a backup for a request that may pass", name)
		}
		got := ""
		v := e.Decide(context.Background(), attrs, UseBackup())
		if b := v.Backup(); b != nil {
			got = b.Upstream
		}
		if v.Allowed || got != c.want {
			t.Errorf("%s: allowed %t, backup %q, want %q", name, v.Allowed, got, c.want)
		}
	}
	if (*Verdict)(nil).Backup() != nil {
		t.Error("no verdict has a backup")
	}
}

// A path of which one reading is not preferred is not.
func TestABackupNeedsAllReadings(t *testing.T) {
	r := testRule(t, "r", "1/h burst 1")
	r.Backup = &Backup{"http://b.test", Match{{Attribute{Kind: Path}, []string{"/spare/**"}}}}
	e := testEngine(t, r)
	e.Decide(context.Background(), Attrs{"path": "/"})
	for path, want := range map[string]bool{"/spare/a": true, "/other": false, "/spare/..;/other": false} {
		v := e.Decide(context.Background(), Attrs{"path": string(AppendPath(nil, path))}, UseBackup())
		if got := v.Backup() != nil; got != want {
			t.Errorf("%s: backup %t", path, got)
		}
	}
}

func TestABackupAfterADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := delayed(t, "1/s burst 1", time.Second, 0)
		r.Backup = &Backup{Upstream: "http://b.test"}
		e := testEngine(t, r)
		e.Decide(context.Background(), Attrs{})
		go e.Await(context.Background(), new(Verdict), Attrs{})
		synctest.Wait()
		var v Verdict
		if e.Await(context.Background(), &v, Attrs{}, UseBackup()); v.Backup() == nil {
			t.Error("whoever finds no place in line has no backup")
		}
		synctest.Wait()
		<-time.After(2 * time.Second)
	})
}

func TestBackupsThatCantBe(t *testing.T) {
	for _, u := range []string{"", "b.test:80", "ftp://b.test", "http://", "http://a:secret@b.test", "http://b.test?x", "http://b.test#x", "http://[::1"} {
		r := testRule(t, "r", "1/s")
		r.Backup = &Backup{Upstream: u}
		_, err := Compile([]Rule{r})
		var re *RuleError
		if !errors.As(err, &re) || re.Field != "backup" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v", u, err)
		}
	}
	r := testRule(t, "r", "1/s")
	r.Backup = &Backup{"http://b.test", Match{{Attribute{Kind: Method}, []string{"post"}}}}
	if _, err := Compile([]Rule{r}); err == nil || !strings.Contains(err.Error(), "upper case") {
		t.Errorf("error %v", err)
	}
}

// Whoever goes to a backup passes, so that every rule but the one that sent it
// there counts it.
func TestWhoGoesToABackupIsCharged(t *testing.T) {
	render := testRule(t, "render", "1/h burst 1")
	render.Backup = &Backup{Upstream: "http://b.test"}
	render.Penalty = Penalty{After: 3, Within: time.Minute, Block: time.Hour}
	render.Key = []Part{{Attributes: []Attribute{{Kind: ClientIP}}}}
	address := testRule(t, "address", "5/h burst 5", "client.ip")
	slots := testRule(t, "slots", "2 at once", "client.ip")
	failed := testRule(t, "failed", "2/h burst 2", "client.ip")
	failed.Failures = []string{"401"}
	traffic := testRule(t, "traffic", "1000/h burst 1000", "client.ip")
	traffic.Unit, traffic.Cost = Bytes, 100
	shadow := testRule(t, "shadow", "2/h burst 2", "client.ip")
	shadow.Spare = 100
	e := testEngine(t, render, address, slots, failed, traffic, shadow)
	attrs := Attrs{"client.ip": "203.0.113.7"}
	ask := func(opts ...Option) *Verdict {
		v := e.Decide(context.Background(), attrs, append(opts, At(start))...)
		return &v
	}
	left := func(v *Verdict, rule string) int64 {
		t.Helper()
		d, ok := v.Peek(context.Background(), rule)
		if !ok {
			t.Fatalf("no peek at %s", rule)
		}
		return d.Remaining
	}
	v := ask(UseBackup())
	if !v.Allowed || v.Backup() != nil {
		t.Fatalf("the first is refused: %v", v.Err())
	}
	if err := v.Ended("200"); err != nil {
		t.Fatal(err)
	}
	v.Done()
	if v := ask(); v.Allowed || v.Backup() != nil || left(v, "address") != 4 {
		t.Fatalf("who does not use the backup: allowed %t, %d left of address", v.Allowed, left(v, "address"))
	}
	for i := range int64(4) {
		v := ask(UseBackup())
		if v.Allowed || v.Backup() == nil || v.Refusing().Rule.Name != "render" || v.Len() != 6 {
			t.Fatalf("%d: allowed %t, backup %v, %d rules: %v", i, v.Allowed, v.Backup(), v.Len(), v.Err())
		}
		if got := v.Of("address").Decision.Remaining; got != 3-i || left(v, "address") != 3-i || left(v, "slots") != 1 {
			t.Fatalf("%d: %d left of address", i, got)
		}
		if err := errors.Join(v.Spent(Bytes, 7), v.Ended("200")); err != nil {
			t.Fatal(err)
		}
		v.Done()
		if left(v, "slots") != 2 || left(v, "failed") != 2 || left(v, "traffic") != 1000-100-7*(i+1) {
			t.Fatalf("%d: left are slots %d, failed %d, traffic %d", i, left(v, "slots"), left(v, "failed"), left(v, "traffic"))
		}
	}
	v = ask(UseBackup())
	if v.Allowed || v.Backup() != nil || len(v.Of("address").Rule.Key) == 0 || !v.Of("address").Refuses() {
		t.Fatalf("beyond address: allowed %t, backup %v", v.Allowed, v.Backup())
	}
	v.Done()
	if left(v, "slots") != 2 || left(v, "traffic") != 1000-100-28 {
		t.Errorf("who is refused is charged: slots %d, traffic %d", left(v, "slots"), left(v, "traffic"))
	}
	if got := v.Of("render").Decision.Reason; got != spillgate.Blocked {
		t.Errorf("render refuses for %v, after so many refusals", got)
	}
	if got := e.Limited("address", 10); len(got) != 1 || got[0].Denied != 1 {
		t.Errorf("address limits %+v", got)
	}
}

// Whatever rules there are, with backups and without, the plainest way says the
// same: who is refused only by rules that prefer it is charged to the others.
func TestBackupsAsThePlainestWayHasThem(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		var rules []Rule
		for i := range 1 + r.IntN(5) {
			n := 1 + r.IntN(6)
			rule := testRule(t, fmt.Sprintf("r%d", i), fmt.Sprintf("%d/h burst %d", n, n), "client.ip")
			if r.IntN(3) > 0 {
				rule.Backup = &Backup{Upstream: fmt.Sprintf("http://b%d.test", i)}
				if r.IntN(2) == 0 {
					rule.Backup.Match = Match{{Attribute{Kind: Tenant}, []string{"paid"}}}
				}
			}
			rule.Cost = 1 + int64(r.IntN(2))
			rule.Cost = min(rule.Cost, int64(n))
			rules = append(rules, rule)
		}
		p, err := Compile(rules)
		if err != nil {
			t.Fatal(err)
		}
		e, faulty := NewEngine(p, spillgate.NewMemory()), NewEngine(p, brokenStore{spillgate.ErrUnavailable})
		used := make([]int64, len(rules))
		for range 40 {
			tenant := pick(r, []string{"paid", "free"})
			attrs := Attrs{"client.ip": "203.0.113.7", "tenant": tenant}
			v := e.Decide(context.Background(), attrs, At(start), UseBackup())
			w := faulty.Decide(context.Background(), attrs, At(start), UseBackup())
			refused, backup, plain := false, "", false
			charged := make([]int64, len(rules))
			for i, rule := range rules {
				if used[i]+rule.Cost <= rule.Limit.Burst {
					charged[i] = rule.Cost
					continue
				}
				refused = true
				if b := rule.Backup; b == nil || len(b.Match) > 0 && tenant != "paid" {
					plain = true
				} else if backup == "" {
					backup = b.Upstream
				}
			}
			if plain {
				backup = ""
			}
			back := r.IntN(4) == 0
			for i := range rules {
				if (!refused || backup != "") && !back {
					used[i] += charged[i]
				}
			}
			for _, v := range []*Verdict{&v, &w} {
				got := ""
				if b := v.Backup(); b != nil {
					got = b.Upstream
				}
				if v.Allowed == refused || got != backup {
					t.Fatalf("seed %d: allowed %t, backup %q, want %t and %q", seed, v.Allowed, got, !refused, backup)
				}
				if back {
					if err := v.GiveBack(); err != nil {
						t.Fatal(err)
					}
				}
				for i, rule := range rules {
					if d, ok := v.Peek(context.Background(), rule.Name); !ok || d.Remaining != rule.Limit.Burst-used[i] {
						t.Fatalf("seed %d: %d left of %s (%t), want %d", seed, d.Remaining, rule.Name, ok, rule.Limit.Burst-used[i])
					}
				}
			}
		}
	}
}

// What an override says of another rule holds for the charges that are left.
func TestABackupBesideOverrides(t *testing.T) {
	render := testRule(t, "render", "1/h burst 1")
	render.Backup = &Backup{Upstream: "http://b.test"}
	wide, address := testRule(t, "wide", "9/h burst 9", "client.ip"), testRule(t, "address", "1/h burst 1", "client.ip")
	who := Match{{Attribute{Kind: ClientIP}, []string{"203.0.113.7"}}}
	e := overridden(t, []Override{
		{Rules: []string{"render"}, Match: who, Limit: limitOf(t, "2/h burst 2"), Reason: "more"},
		{Rules: []string{"address"}, Match: who, Limit: limitOf(t, "4/h burst 4"), Reason: "more"},
	}, render, wide, address)
	for i := range 6 {
		v := e.Decide(context.Background(), Attrs{"client.ip": "203.0.113.7"}, At(start), UseBackup())
		if want := i >= 2 && i < 4; v.Allowed != (i < 2) || (v.Backup() != nil) != want {
			t.Errorf("%d: allowed %t, backup %v", i, v.Allowed, v.Backup())
		}
		if o := v.Of("address"); o.Override == nil || o.Override.Limit != limitOf(t, "4/h burst 4") {
			t.Errorf("%d: address by the override %v", i, o.Override)
		}
		if v.Of("wide").Override != nil {
			t.Errorf("%d: wide has an override", i)
		}
	}
}
