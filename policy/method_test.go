package policy

import "testing"

func TestAppendMethod(t *testing.T) {
	for method, want := range map[string]string{
		"": "", "GET": "GET", "M-SEARCH": "M-SEARCH", "post": "post\x00POST", "Post": "Post\x00POST", "x-y": "x-y\x00X-Y",
	} {
		if got := string(AppendMethod([]byte("="), method)); got != "="+want {
			t.Errorf("%q: %q, want %q", method, got, "="+want)
		}
	}
}

// A rule on POST charges "post", since some servers serve it so; what it does not
// charge has no reading that it would.
func TestMethodInLowerCase(t *testing.T) {
	login := testRule(t, "login", "1/h burst 1")
	login.Match = Match{{Attribute{Kind: Method}, []string{"POST"}}}
	login.Peek = Match{{Attribute{Kind: Method}, []string{"GET"}}}
	writes := testRule(t, "writes", "9/h burst 9")
	writes.Match = Match{{Attribute{Kind: Method}, []string{"!GET"}}}
	e := testEngine(t, login, writes)
	for i, c := range []struct {
		method string
		passes bool
		left   int64 // of login
	}{{"post", true, 0}, {"POST", false, 0}, {"pOST", false, 0}, {"GET", true, 0}} {
		v := decide(e, 0, Attrs{"method": string(AppendMethod(nil, c.method))})
		if v.Allowed != c.passes || v.Of("login").Decision.Remaining != c.left {
			t.Errorf("%d: %s: %+v", i, c.method, v)
		}
	}
	if v := decide(e, 0, Attrs{"method": string(AppendMethod(nil, "get"))}); !v.Allowed || v.Of("login") != nil || v.Of("writes") == nil {
		t.Errorf("get is no peek in all its readings, and one that is not GET: %+v", v)
	}
}

// People are told all readings.
func TestMethodsAreExplained(t *testing.T) {
	r := testRule(t, "r", "1/s")
	r.Match = Match{{Attribute{Kind: Method}, []string{"POST"}}}
	e := testEngine(t, r)
	x := e.Policy().Explain(Attrs{"method": string(AppendMethod(nil, "put"))})
	if got, want := x.Rules[0].Why, "method is put or PUT, not POST"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
