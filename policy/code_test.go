package policy

import "testing"

func TestCodes(t *testing.T) {
	for code, want := range map[uint32]string{0: "OK", 1: "CANCELLED", 2: "UNKNOWN", 16: "UNAUTHENTICATED", 17: "UNKNOWN", 255: "UNKNOWN", 1 << 31: "UNKNOWN"} {
		if got := CodeName(code); got != want {
			t.Errorf("%d is %s, want %s", code, got, want)
		}
		r := testRule(t, "r", "2/h burst 2", "client.ip")
		r.Failures = []string{want, "401"}
		e := testEngine(t, r)
		for _, ends := range []struct {
			code    uint32
			outcome string
			left    int64
		}{{5, "200", 2}, {code, "200", 1}, {3, "401", 0}} {
			v := e.Decide(t.Context(), Attrs{"client.ip": "203.0.113.7"})
			v.Code(ends.code)
			if err := v.Ended(ends.outcome); err != nil {
				t.Error(err)
			}
			if d, ok := v.Peek(t.Context(), "r"); !ok || d.Remaining != ends.left {
				t.Errorf("%+v, of %s: %d left", ends, want, d.Remaining)
			}
		}
	}
	var none *Verdict
	none.Code(16)
}
