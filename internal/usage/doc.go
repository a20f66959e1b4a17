// Package usage finds out what a call of a language model costs: before it, an
// estimate by the request, and after it, what the answer says of itself, in JSON
// or in a stream of events, read while it passes by.
//
// Nothing that is read is kept or changed. Memory is bounded, whatever a body
// holds: a number is found where it stands, and the rest is stepped over.
package usage
