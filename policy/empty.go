package policy

// empty reports whether a value says nothing: it has no byte, or blanks and tabs
// only. A request with such a value lacks the attribute, for who sends an empty
// token has none. Most values say so by their first byte.
func empty(v []byte) bool {
	for _, c := range v {
		if !isBlank(c) {
			return false
		}
	}
	return true
}
