// Package ratedropin proves that package rate is a drop-in for
// golang.org/x/time/rate: the tests that package publishes pass against it, and
// scripts that both play have the same answers.
package ratedropin
