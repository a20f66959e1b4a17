// Package cases tests that every fault of the catalogue that this project was
// planned with has a named test (docs/proof.md lists them), and holds those
// tests that no package of its own has. It has no code of its own.
package cases
