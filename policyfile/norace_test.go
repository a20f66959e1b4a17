//go:build !race

package policyfile

const raced = 1
