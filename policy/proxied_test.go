package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
)

// What a trusted proxy sets is proven: it needs no companion, and may say whose
// lane, exemption, cost and limit it is, without a warning.
func TestProxiesAttributesAreProven(t *testing.T) {
	of := func(name string, values ...string) Match {
		a, err := ParseAttribute(name)
		if err != nil {
			t.Fatal(err)
		}
		return Match{{a, values}}
	}
	for _, c := range []struct {
		kind string
		fine bool
	}{{"header", false}, {"proxy", true}} {
		if _, err := Compile([]Rule{testRule(t, "user", "5/s", c.kind+".x-user")}); (err == nil) != c.fine {
			t.Errorf("%s in a key: %v", c.kind, err)
		}
		free := Rule{Name: "free", Exempt: true, Match: of(c.kind+".x-plan", "own")}
		if _, err := Compile([]Rule{free}); (err == nil) != c.fine {
			t.Errorf("%s exempts: %v", c.kind, err)
		}
		r := testRule(t, "shared", "5/s", "client.ip")
		r.Peek = of(c.kind+".x-plan", "look")
		r.Lanes = []Lane{{Match: of(c.kind+".x-plan", "paid")}, {Keep: 1}}
		r.Prices = []Price{{Match: of(c.kind+".x-plan", "paid"), Units: 1}, {Units: 3}}
		r.Penalty = Penalty{After: 3, Within: 1e9, Block: 1e9}
		p, err := Compile([]Rule{r})
		if err != nil {
			t.Fatal(err)
		}
		var codes []string
		for _, w := range p.Warnings() {
			codes = append(codes, w.Code)
		}
		if (len(codes) == 0) != c.fine {
			t.Errorf("%s: warnings %q", c.kind, codes)
		}
		over := Override{Match: of(c.kind+".x-plan", "paid"), Exempt: true}
		if _, ok := over.OnWord(); ok == c.fine {
			t.Errorf("an override by %s goes by the client's word: %v", c.kind, ok)
		}
	}
}

// What clients send by themselves, and proxies hand on, is no proxy's word.
func TestProxiesAttributesThatAreTheClients(t *testing.T) {
	for name, instead := range map[string]string{
		"proxy.Host": "use host", "proxy.cookie": "use cookie.NAME", "proxy.X-Forwarded-For": "use client.ip", "proxy.forwarded": "use client.ip",
		"proxy.user-agent": "use header.user-agent", "proxy.via": "use header.via", "proxy.content-length": "use content-length", "proxy.:authority": "use host, method or path",
		"proxy.transfer-encoding": "use content-length", "proxy": `did you mean "proxy.NAME"?`, "proxy.": "want a name after the dot",
	} {
		if _, err := ParseAttribute(name); err == nil || !strings.Contains(err.Error(), instead) {
			t.Errorf("%s: %v, want %q", name, err, instead)
		}
	}
	a, err := ParseAttribute("proxy.X-User")
	if want := (Attribute{Proxy, "x-user"}); err != nil || a != want || a.String() != "proxy.x-user" || a.Kind.Claimed() {
		t.Errorf("%v, %v", a, err)
	}
}

// They are read as headers are: in one form, with one value, and secrets as
// fingerprints.
func TestProxiesAttributesAreFields(t *testing.T) {
	token := testRule(t, "token", "1/h burst 1", "proxy.authorization")
	token.Missing = Refuse
	items := testRule(t, "items", "100/h burst 100", "proxy.x-user")
	items.Prices = []Price{{From: Attribute{Proxy, "x-items"}}}
	p, err := Compile([]Rule{token, items})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(p, spillgate.NewMemory())
	ask := func(auth, user string) Verdict {
		return e.Decide(t.Context(), Attrs{"proxy.authorization": auth, "proxy.x-user": user, "proxy.x-items": "7", "header.authorization": "Bearer U"})
	}
	if v := ask("bearer   T", "ann"); !v.Allowed || v.Of("items").Decision.Remaining != 93 {
		t.Errorf("the first: %v", v.Err())
	}
	if v := ask("Bearer T", " ann "); v.Allowed || v.Of("items").Decision.Remaining != 93 {
		t.Error("one token in another spelling is another caller")
	}
	if v := ask("  ", "ann"); v.Allowed {
		t.Error("an empty token is one")
	}
	text := e.KeyText("token", Attrs{"proxy.authorization": "Bearer T"})
	if !strings.HasPrefix(text, "proxy.authorization=hmac:") {
		t.Errorf("shown as %q", text)
	}
}

// several has two values of one field.
type several struct{ Attrs }

func (s several) AppendRepeats(dst []byte, a Attribute) []byte {
	if a.Kind == Proxy {
		dst = append(dst, "ann\x00bob\x00"...)
	}
	return dst
}

func TestProxiesAttributesThatComeTwice(t *testing.T) {
	p, err := Compile([]Rule{testRule(t, "user", "5/s", "proxy.x-user")})
	if err != nil {
		t.Fatal(err)
	}
	v := NewEngine(p, spillgate.NewMemory()).Decide(t.Context(), several{Attrs{"proxy.x-user": "ann, bob"}})
	var repeated *RepeatedError
	if !errors.As(v.Err(), &repeated) || repeated.Attribute != (Attribute{Proxy, "x-user"}) {
		t.Errorf("%v", v.Err())
	}
}
