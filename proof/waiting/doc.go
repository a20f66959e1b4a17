// Package waiting tests those who wait (I12, I13) in virtual time: that grants
// come in order of arrival and at the earliest instant, that whoever gives up
// has paid nothing, and that nothing is left behind. It has no code of its
// own.
package waiting
