package httplimit

import (
	"errors"
	"net/url"

	"github.com/spillgate/spillgate/policy"
)

// repeatedOf returns why nothing was decided if it is that something comes
// several times, else nil.
func repeatedOf(err error) *policy.RepeatedError {
	var repeated *policy.RepeatedError
	if err == nil || !errors.As(err, &repeated) {
		return nil
	}
	return repeated
}

// oddOf returns why nothing was decided if it is that a request may be too much at
// once, else nil.
func oddOf(err error) *policy.OddError {
	var odd *policy.OddError
	if err == nil || !errors.As(err, &odd) {
		return nil
	}
	return odd
}

// oddly says of what a request, or a call, may be too much at once.
func oddly(what string, a policy.Attribute) string {
	return a.String() + " of this " + what + " may be taken in too many ways. Send it in a plain form, once."
}

// appendRepeated says of which field or parameter a request has several values.
func appendRepeated(b []byte, a policy.Attribute) []byte {
	kind := "The header field "
	if a.Kind == policy.Query {
		kind = "The query parameter "
	}
	b = append(append(b, kind...), url.QueryEscape(a.Name)...) // so nothing in it needs quotes
	return append(b, " comes several times, with different values, and by it requests are told apart. Send it once."...)
}
