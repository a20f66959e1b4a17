package policy

import "testing"

func TestCredentials(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "Bearer T": "bearer T", "BEARER \t T t": "bearer T t", "\tBearer\tT ": "bearer T", "Bearer": "Bearer", "Bearer ": "Bearer",
		"AbC": "AbC", " ": "", "Basic  QWxh==": "basic QWxh==", "bearer T  t": "bearer T  t",
	} {
		for _, name := range []string{"authorization", "proxy-authorization"} {
			if got := normalText(Attribute{Kind: Header, Name: name}, in); got != want {
				t.Errorf("%q: %q, want %q", in, got, want)
			}
		}
	}
	if got := normalText(Attribute{Kind: Header, Name: "x-token"}, " Bearer  T"); got != "Bearer  T" {
		t.Errorf("of another header: %q", got)
	}
	// One of two: each is in its form, and stays so however often it is asked for.
	text := []byte("Bearer  T\x00bearer\tTT\x00\x00")
	if got := string(normalRepeats(Attribute{Kind: Header, Name: "authorization"}, text)); got != "bearer T\x00bearer TT\x00\x00" {
		t.Errorf("several: %q", got)
	}
	for _, c := range []struct {
		value, pattern string
		want           bool
	}{
		{"bearer T", "Bearer T", true}, {"BEARER  T", "Bearer *", true}, {"BEARER T", "Bearer*", true}, {"Bearer", "Bearer*", true},
		{"Bearer T", "Bearer t", false}, {"Basic abC", "*abC", true}, {"Basic abC", "*abc", false}, {"bearer T", "!Bearer T", false}, {"Basic T", "!Bearer *", true},
	} {
		m, err := compileMatch(Match{{Attribute: Attribute{Kind: Header, Name: "authorization"}, Values: []string{c.pattern}}})
		if err != nil {
			t.Fatal(err)
		}
		var r request
		r.begin(Attrs{"header.authorization": c.value}, nil)
		if got := r.meets(m, false); got != c.want {
			t.Errorf("%q, %q: %t", c.value, c.pattern, got)
		}
	}
}
