package policy

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"time"
)

// A handler that runs without a policy has a nil verdict, and calls it all the
// same. No method of it, of a zero verdict or of an outcome beyond the last
// panics.
func TestNilAndZeroVerdictsDoNothing(t *testing.T) {
	given := map[reflect.Type]reflect.Value{}
	for _, v := range []any{99, int64(1), uint32(16), "x", time.Now(), time.Second, new(Verdict).Outcome(0), []slog.Attr{}} {
		given[reflect.TypeOf(v)] = reflect.ValueOf(v)
	}
	given[reflect.TypeFor[context.Context]()] = reflect.ValueOf(t.Context())
	for name, v := range map[string]any{
		"nil verdict": (*Verdict)(nil), "zero verdict": new(Verdict),
		"outcome of none": (*Verdict)(nil).Outcome(0), "outcome below 0": new(Verdict).Outcome(-1),
	} {
		of := reflect.TypeOf(v)
		for i := range of.NumMethod() {
			m := of.Method(i)
			in := []reflect.Value{reflect.ValueOf(v)}
			for j := 1; j < m.Type.NumIn(); j++ {
				arg := m.Type.In(j)
				if m.Type.IsVariadic() && j == m.Type.NumIn()-1 {
					arg = arg.Elem()
				}
				if !given[arg].IsValid() {
					t.Fatalf("%s: %s takes %s", name, m.Name, arg)
				}
				in = append(in, given[arg])
			}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s: %s panics: %v", name, m.Name, p)
					}
				}()
				m.Func.Call(in)
			}()
		}
	}
	e := testEngine(t, testRule(t, "a", "1/h"), testRule(t, "b", "1/h"), testRule(t, "c", "1/h"), testRule(t, "d", "1/h"))
	v := decide(e, 0, Attrs{})
	for _, i := range []int{-1, 4, 99} {
		if o := v.Outcome(i); o.Refuses() || o.Judged() || o.Rule.Name != "" {
			t.Errorf("outcome %d of %d: %+v", i, v.Len(), o)
		}
	}
}
