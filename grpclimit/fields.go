package grpclimit

import (
	"strconv"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/metadata"
)

// policyItems returns what RateLimit-Policy says of each rule, nothing for
// those without a quota.
func policyItems(rules []policy.Rule) map[*policy.Rule]string {
	items := map[*policy.Rule]string{}
	for i := range rules {
		r := &rules[i]
		if r.Deny || r.Hide || r.Limit.Algorithm == spillgate.Unlimited {
			continue
		}
		b := appendInteger(append(appendName(nil, r.Name), ";q="...), r.Limit.Cap())
		u := unit(r)
		switch {
		case u == policy.Bytes:
			u = "content-bytes"
		case u == policy.Requests && r.Limit.Algorithm == spillgate.Concurrency:
			u = "concurrent-requests"
		}
		if u != policy.Requests {
			b = append(append(append(b, `;qu="`...), u...), '"')
		}
		if w := r.Limit.Window(); w > 0 {
			b = appendInteger(append(b, ";w="...), seconds(w))
		}
		items[r] = string(b)
	}
	return items
}

// fields returns the RateLimit fields of v, the rules that refuse first; nil if
// there is nothing to tell. Rules on trial are not told of, nor is anything
// while the store is at fault.
func (s *server) fields(v *policy.Verdict) metadata.MD {
	if v.Fault != nil {
		return nil
	}
	var limits, policies []byte
	tell := func(refusing bool) {
		for i := range v.Len() {
			o := v.Outcome(i)
			item := s.item(o)
			if item == "" || o.Trial || o.Refuses() != refusing || o.Flat() {
				continue
			}
			if len(limits) > 0 {
				limits, policies = append(limits, ", "...), append(policies, ", "...)
			}
			policies = append(policies, item...)
			limits = appendInteger(append(appendName(limits, o.Rule.Name), ";r="...), o.Decision.Remaining)
			if o.Rule.Limit.Algorithm != spillgate.Concurrency && o.Decision.ResetAfter != spillgate.Never {
				limits = appendInteger(append(limits, ";t="...), seconds(o.Decision.ResetAfter))
			}
		}
	}
	tell(true)
	tell(false)
	if len(limits) == 0 {
		return nil
	}
	return metadata.MD{"ratelimit-policy": {string(policies)}, "ratelimit": {string(limits)}}
}

// appendName appends a rule's name as a String; it holds nothing that would
// need an escape.
func appendName(b []byte, name string) []byte {
	return append(append(append(b, '"'), name...), '"')
}

// appendInteger appends an Integer, capped at what one can be (RFC 9651,
// 3.3.1).
func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, max(0, min(n, 999_999_999_999_999)), 10)
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
