package policy

import (
	"context"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
)

// The answer of a fault is that of the first rule that refuses for it.
func TestTheFirstThatIsClosedAnswers(t *testing.T) {
	a, b := &Answer{Status: 500}, &Answer{Status: 502}
	rules := func(faults ...OnFault) []Rule {
		var out []Rule
		for i, f := range faults {
			r := testRule(t, string(rune('a'+i)), "1/h burst 4")
			if r.OnFault = f; f == Shut {
				r.FaultAnswer = []*Answer{a, b}[i]
			}
			out = append(out, r)
		}
		return out
	}
	for name, c := range map[string]struct {
		rules []Rule
		store spillgate.Store
		want  *Answer
	}{
		"both":      {rules(Shut, Shut), brokenStore{spillgate.ErrUnavailable}, a},
		"second":    {rules(Open, Shut), brokenStore{spillgate.ErrUnavailable}, b},
		"beside":    {rules(Local, Shut), brokenStore{spillgate.ErrUnavailable}, b},
		"none":      {rules(Local, Open), brokenStore{spillgate.ErrUnavailable}, nil},
		"no fault":  {rules(Shut, Shut), spillgate.NewMemory(), nil},
		"unhandled": {rules(Shut, Shut), brokenStore{spillgate.ErrCost}, nil},
	} {
		p, err := Compile(c.rules)
		if err != nil {
			t.Fatal(err)
		}
		v := NewEngine(p, c.store).Decide(context.Background(), Attrs{}, At(start))
		if got := v.FaultAnswer(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if (*Verdict)(nil).FaultAnswer() != nil {
		t.Error("no verdict has an answer")
	}
}

// It is no denial: nobody's quota is used up.
func TestFaultAnswersAreNoDenials(t *testing.T) {
	for _, c := range []struct {
		fault  OnFault
		answer Answer
		want   string // in the error, "" for none
	}{
		{Shut, Answer{Status: 503, Type: "text/plain", Body: "x"}, ""},
		{Shut, Answer{Status: 200, Problem: ReducedCapacity}, ""},
		{Shut, Answer{Status: 429}, "status 429: nobody used up anything"},
		{Shut, Answer{Problem: QuotaExceeded}, "problem \"quota-exceeded\": nobody"},
		{Shut, Answer{Problem: AbnormalUsage, Status: 503}, "problem \"abnormal-usage-detected\": nobody"},
		{Shut, Answer{Status: 600}, "want 200 to 599"},
		{Shut, Answer{Header: map[string]string{"Retry-After": "60"}}, "set by the server itself"},
		{Open, Answer{Status: 503}, "only a rule that is closed"},
		{Local, Answer{Status: 503}, "only a rule that is closed"},
	} {
		r := testRule(t, "r", "1/s")
		r.OnFault, r.FaultAnswer = c.fault, &c.answer
		_, err := Compile([]Rule{r})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "on_fault")) {
			t.Errorf("%v, %+v: %v, want %q", c.fault, c.answer, err, c.want)
		}
		if c.fault == Shut && (c.answer.ValidateFault() == nil) != (c.want == "") {
			t.Errorf("%+v: %v", c.answer, c.answer.ValidateFault())
		}
	}
}
