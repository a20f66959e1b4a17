//go:build !race

package httplimit_test

const race = false
