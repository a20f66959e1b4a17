package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/textproto"
	"slices"
	"strings"
)

// An Answer is what a client that a rule refuses is told in place of a front's
// own words. Its zero value changes nothing. Fronts that have no bodies and
// fields pass it over.
type Answer struct {
	// Status is an HTTP status, 200 to 599; 0 is the front's own: 429, 403 for
	// a rule that denies, or what Problem says.
	Status int
	// Problem is the type of the front's own body.
	Problem Problem
	// Header holds fields by name, beside those that tell of limits.
	Header map[string]string
	// Type is the media type of Body, such as "text/html; charset=utf-8".
	// Without it the body is the front's own.
	Type string
	// Body is at most [MaxAnswer] bytes.
	Body string
}

// MaxAnswer is how many bytes the body of an [Answer] has at most.
const MaxAnswer = 1 << 20

// A Problem is one of the types of problems (RFC 9457) that
// draft-ietf-httpapi-ratelimit-headers defines.
type Problem string

const (
	// QuotaExceeded is for a caller that used up its quota; 429. It is the
	// default of rules with a limit.
	QuotaExceeded Problem = "quota-exceeded"
	// ReducedCapacity is for a service that can do less for now; 503.
	ReducedCapacity Problem = "temporary-reduced-capacity"
	// AbnormalUsage is for a caller that behaves as no good one would; 429.
	AbnormalUsage Problem = "abnormal-usage-detected"
)

// Problems are all types.
func Problems() []Problem { return []Problem{QuotaExceeded, ReducedCapacity, AbnormalUsage} }

// ownFields are those that an answer can't set: the front or the server does.
var ownFields = []string{
	"Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Proxy-Connection", "Ratelimit", "Ratelimit-Policy", "Retry-After",
	"Spillgate-Refusal", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Validate reports what is wrong with a, nil if it can be given.
func (a *Answer) Validate() error {
	if err := a.check(); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	return nil
}

func (a *Answer) check() error {
	switch {
	case a.Status != 0 && (a.Status < 200 || a.Status > 599):
		return fmt.Errorf("status %d: want 200 to 599", a.Status)
	case a.Type != "" && (a.Status == 204 || a.Status == 205 || a.Status == 304):
		return fmt.Errorf("status %d has no body; remove one of them", a.Status)
	case a.Problem != "" && !slices.Contains(Problems(), a.Problem):
		return fmt.Errorf("problem %q: want quota-exceeded, temporary-reduced-capacity or abnormal-usage-detected", string(a.Problem))
	case a.Problem != "" && a.Type != "":
		return errors.New("problem and a body of its own exclude each other; remove one of them")
	case a.Type == "" && a.Body != "":
		return errors.New("a body without its media type")
	case len(a.Body) > MaxAnswer:
		return fmt.Errorf("a body of %d bytes; at most %d", len(a.Body), MaxAnswer)
	}
	if a.Type != "" {
		media, _, err := mime.ParseMediaType(a.Type)
		if err != nil {
			return fmt.Errorf("media type %q: %w", a.Type, err)
		}
		if media == "application/json" && !json.Valid([]byte(a.Body)) {
			return errors.New("the body is no valid JSON")
		}
	}
	seen := make(map[string]string, len(a.Header)) // by the name that net/http gives it
	for name, value := range a.Header {
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !token(name):
			return fmt.Errorf("header %q: no name of a field; write one such as X-Reason", name)
		case slices.Contains(ownFields, key):
			return fmt.Errorf("header %s: set by the server itself; remove it", name)
		case strings.HasPrefix(key, "X-Ratelimit-"):
			return fmt.Errorf("header %s: a dialect tells of limits in it, with numbers that are true; remove it, and choose a dialect, such as github", name)
		case seen[key] != "":
			return fmt.Errorf("header %s: the same as %s, in other letters; remove one of them", max(name, seen[key]), min(name, seen[key]))
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
			return fmt.Errorf("header %s: has control characters; write a value of one line", name)
		}
		seen[key] = name
	}
	return nil
}

// checkFaultAnswer reports what is wrong with the answer that r gives while the
// store fails.
func (r *Rule) checkFaultAnswer() error {
	a := r.FaultAnswer
	switch {
	case a == nil:
		return nil
	case r.OnFault != Shut:
		return errors.New("only a rule that is closed while the store fails answers for that; write closed, or remove the answer")
	}
	return a.checkFault()
}

// ValidateFault reports why a can't be a [Rule.FaultAnswer], nil if it can.
func (a *Answer) ValidateFault() error {
	if err := a.checkFault(); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	return nil
}

func (a *Answer) checkFault() error {
	const never = ": nobody used up anything, and clients would believe it; "
	switch {
	case a.Status == 429:
		return errors.New("status 429" + never + "write 503, or leave it out")
	case a.Problem != "" && a.Problem != ReducedCapacity:
		return fmt.Errorf("problem %q"+never+"write temporary-reduced-capacity, or leave it out", string(a.Problem))
	}
	return a.check()
}

// token reports whether s can be a field's name (RFC 9110, 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
