package policy

import "github.com/spillgate/spillgate/internal/topk"

// KeyText returns the key of a request under the rule of that name in words, as
// [Caller] has it: secret parts are fingerprints. It is for a log line, say, and
// "" if the policy has no such rule. An override that names no rule refuses in the
// name of one whose key is client.ip.
func (e *Engine) KeyText(rule string, attrs Attributes) string {
	i, err := e.ruleOf(rule)
	if rule == everyRule {
		i, err = len(e.policy.plain), nil
	}
	if err != nil {
		return ""
	}
	s := e.scratch.Get().(*scratch)
	s.begin(attrs, e.policy.slots)
	s.key = s.appendText(s.key[:0], e.policy.rules[i].Key, &e.prints)
	text := topk.Cut(s.key)
	s.end(e.prints.hides)
	e.scratch.Put(s)
	return text
}
