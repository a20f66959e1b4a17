package policy

import (
	"errors"
	"strings"
	"testing"
)

// An override's limit must have room for whatever a request is said to cost,
// whether that is one number for all or depends on the request.
func TestOverridesHaveRoomForCosts(t *testing.T) {
	from := Attribute{Kind: Query, Name: "n"}
	for _, c := range []struct {
		name string
		set  func(*Rule)
		most string // "" if it fits
	}{
		{"a constant cost", func(r *Rule) { r.Cost = 6 }, "costs 6"},
		{"the largest of several", func(r *Rule) { r.Prices = []Price{{Match: on(t, "method", "POST"), Units: 7}, {Units: 1}} }, "may cost 7"},
		{"the most of one that is read", func(r *Rule) { r.Prices = []Price{{From: from, Most: 8}} }, "may cost 8"},
		{"its default", func(r *Rule) { r.Prices = []Price{{From: from, Default: 9}} }, "may cost 9"},
		{"one that fits", func(r *Rule) { r.Prices = []Price{{From: from, Default: 4, Most: 5}} }, ""},
		{"one without a most", func(r *Rule) { r.Prices = []Price{{From: from}} }, ""},
	} {
		r := testRule(t, "a", "10/s burst 20")
		c.set(&r)
		p, err := Compile([]Rule{r})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.WithOverrides([]Override{{Rules: []string{"a"}, Match: on(t, "client.ip", "192.0.2.1"), Limit: limitOf(t, "5/s burst 5")}})
		var wrong *OverrideError
		if got := errors.As(err, &wrong); got != (c.most != "") {
			t.Errorf("%s: %v", c.name, err)
		} else if got && (wrong.Field != "limit" || !strings.Contains(err.Error(), " "+c.most+", which is more than ever fits at once (5)")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
