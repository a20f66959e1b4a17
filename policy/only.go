package policy

// Only decides by those rules alone that count in unit, as for a message of a
// stream whose opening was decided by all: policy.Only("messages").
func Only(unit string) Option { return Option{only: unit} }

// Tentative decides for a front that holds what is refused and asks again: a
// refusal is no last word, so it counts for no [Penalty] and is not listed among
// who is limited. The last word is a decision without it.
func Tentative() Option { return Option{tentative: true} }

// onlyOf returns the unit that opts confine the decision to, "" if none.
func onlyOf(opts []Option) string {
	for i := range opts {
		if opts[i].only != "" {
			return opts[i].only
		}
	}
	return ""
}
