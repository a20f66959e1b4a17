package policy

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
)

const secretToken = "Bearer sk-live-4f9d0c77ab"

func secretEngine(t *testing.T, m *spillgate.Memory, opts ...EngineOption) *Engine {
	t.Helper()
	p, err := Compile([]Rule{
		testRule(t, "bearer", "1/h burst 1", "header.authorization"),
		testRule(t, "mixed", "1/h burst 1", "host", "attr.pin secret"),
		testRule(t, "address", "1/h burst 1000", "client.ip secret"),
		testRule(t, "companion", "1000/s", "client.ip"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return NewEngine(p, m, opts...)
}

// What a key's secret parts hold stands in no list, no error, no snapshot, and
// in no memory that is kept for the next request.
func TestSecretsAreShownAsFingerprintsOnly(t *testing.T) {
	m := spillgate.NewMemory()
	e := secretEngine(t, m, FingerprintKey([]byte("of this test")))
	attrs := Attrs{
		"header.authorization": secretToken, "host": "a.example", "attr.pin": secretToken + "-pin",
		"client.ip": "203.0.113.7",
	}
	var shown strings.Builder
	for range 3 {
		v := e.Decide(context.Background(), attrs, Cost(Requests, 1))
		if err := v.Err(); err != nil {
			shown.WriteString(err.Error())
		}
	}
	want := map[string]string{
		"bearer": `^header\.authorization=hmac:[0-9a-f]{16}$`,
		"mixed":  `^host=a\.example attr\.pin=hmac:[0-9a-f]{16}$`,
	}
	for rule, form := range want {
		callers := e.Limited(rule, 10)
		if len(callers) != 1 || !regexp.MustCompile(form).MatchString(callers[0].Key) {
			t.Errorf("%s lists %+v, want one that fits %s", rule, callers, form)
		}
		for _, c := range callers {
			shown.WriteString(c.Key)
		}
	}
	var snapshot bytes.Buffer
	if err := m.Snapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	s := e.scratch.Get().(*scratch) // race detectors drop some of the pool's, and then it is new
	for where, what := range map[string]string{
		"what is shown": shown.String(), "the snapshot": snapshot.String(),
		"the memory that is reused": string(s.buf[:cap(s.buf)]) + string(s.key[:cap(s.key)]),
	} {
		if strings.Contains(what, "sk-live") {
			t.Errorf("%s holds the token", where)
		}
	}
	if got, want := e.Limited("bearer", 1)[0].Key, "header.authorization="+e.Fingerprint(attribute(t, "header.authorization"), secretToken); got != want {
		t.Errorf("listed %q, looked up %q", got, want)
	}
}

func attribute(t *testing.T, s string) Attribute {
	t.Helper()
	a, err := ParseAttribute(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestFingerprints(t *testing.T) {
	a, b := attribute(t, "header.authorization"), attribute(t, "cookie.authorization")
	one := secretEngine(t, spillgate.NewMemory(), FingerprintKey([]byte("k1")))
	same := secretEngine(t, spillgate.NewMemory(), FingerprintKey([]byte("k1")))
	other := secretEngine(t, spillgate.NewMemory(), FingerprintKey([]byte("k2")))
	random := secretEngine(t, spillgate.NewMemory())
	m := spillgate.NewMemory()
	if p := secretEngine(t, m).Fingerprint(a, secretToken); p != secretEngine(t, m).Fingerprint(a, secretToken) {
		t.Error("two engines of one seed differ")
	}
	p := one.Fingerprint(a, secretToken)
	if p != same.Fingerprint(a, secretToken) {
		t.Error("two engines of one key differ")
	}
	for name, q := range map[string]string{
		"another key": other.Fingerprint(a, secretToken), "a random key": random.Fingerprint(a, secretToken),
		"another attribute": one.Fingerprint(b, secretToken), "another value": one.Fingerprint(a, secretToken+"x"),
	} {
		if p == q {
			t.Errorf("%s has the same fingerprint", name)
		}
	}
}

func TestWhichAttributesAreSecret(t *testing.T) {
	for name, want := range map[string]bool{
		"header.authorization": true, "header.proxy-authorization": true, "header.x-api-key": true, "header.cookie": true,
		"header.x-amz-security-token": true, "query.access_token": true, "query.apikey": true, "query.X-Amz-Signature": true,
		"cookie.sid": true, "cookie.lang": true,
		"query.key": true, "query.my_key": true, "header.x-jwt": true, "query.sig": true, "header.x-pwd": true, "query.code": true, "header.x-otp-1": true,
		"header.idempotency-key": false, "header.x-country-code": false, "header.sec-websocket-key": false, "query.design": false, "header.x-passenger": false, "query.keyword": false,
		"header.x-user-id": false, "query.page": false, "client.ip": false, "user": false, "claim.sub": false, "attr.token": false,
	} {
		if got := attribute(t, name).Secret(); got != want {
			t.Errorf("%s: secret is %t", name, got)
		}
	}
	for text, want := range map[string]string{
		"cookie.lang":                          "cookie.lang=hmac:*",
		"cookie.lang shown":                    "cookie.lang=de",
		"user secret":                          "user=hmac:*",
		"client.ip secret":                     "client.ip=hmac:*",
		"header.authorization else client.ip":  "client.ip=203.0.113.7",
		"client.ip/56":                         "client.ip=203.0.113.7",
		"header.x-none else cookie.lang lower": "cookie.lang=hmac:*",
	} {
		e := testEngine(t, testRule(t, "r", "1/h burst 1", text), testRule(t, "c", "1000/s", "client.ip"))
		for range 2 {
			e.Decide(context.Background(), Attrs{"cookie.lang": "de", "user": "alice", "client.ip": "203.0.113.7"})
		}
		got := e.Limited("r", 1)[0].Key
		if prefix, any := strings.CutSuffix(want, "*"); got != want && !(any && strings.HasPrefix(got, prefix)) {
			t.Errorf("%q lists %q, want %q", text, got, want)
		}
	}
}

func TestSecretAddressesAreGrouped(t *testing.T) {
	e := testEngine(t, testRule(t, "r", "1/h burst 1", "client.ip/56 secret"))
	for _, ip := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:ff::1"} {
		e.Decide(context.Background(), Attrs{"client.ip": ip})
	}
	if got := e.Limited("r", 9); len(got) != 1 || got[0].Denied != 2 {
		t.Errorf("listed %+v", got)
	}
}

func TestLargeValuesLeaveNoRoomBehind(t *testing.T) {
	e := testEngine(t, testRule(t, "r", "1/h burst 1", "user"))
	big := Attrs{"user": strings.Repeat("x", 1<<20)}
	for i := range 2 {
		if v := e.Decide(context.Background(), big); v.Allowed != (i == 0) {
			t.Errorf("request %d: allowed %t", i, v.Allowed)
		}
	}
	if got := e.Limited("r", 1)[0].Key; len(got) > 256 {
		t.Errorf("the list holds %d bytes of the key", len(got))
	}
	if s := e.scratch.Get().(*scratch); cap(s.buf) > maxScratch || cap(s.key) > maxScratch {
		t.Errorf("%d and %d bytes are kept", cap(s.buf), cap(s.key))
	}
}
