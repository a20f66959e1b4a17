package policy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
		if v := e.Decide(context.Background(), attrs); v.Allowed && v.Backup() != nil {
			t.Errorf("%s: a backup for a request that may pass", name)
		}
		got := ""
		v := e.Decide(context.Background(), attrs)
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
		v := e.Decide(context.Background(), Attrs{"path": string(AppendPath(nil, path))})
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
		if e.Await(context.Background(), &v, Attrs{}); v.Backup() == nil {
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
