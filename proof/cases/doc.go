// Package cases tests that every bug of other rate limiters in docs/proof.md,
// where their public reports are linked, has a named test, and holds those tests
// that no package of its own has. It has no code of its own.
package cases
