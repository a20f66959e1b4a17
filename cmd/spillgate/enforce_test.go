package main

import (
	"net"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policyfile"
)

// TestServeSaysThatNobodyIsRefused: a gateway that limits nobody says so where
// its operator looks first.
func TestServeSaysThatNobodyIsRefused(t *testing.T) {
	for _, first := range []string{"enforce: off\n", "enforce: on\n", ""} {
		file, err := policyfile.Parse("limits.yaml", []byte(first+"rules: [{name: a, limit: 5/s}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		announce(&out, "limits.yaml", file, &net.TCPAddr{Port: 80}, &file.Server, false)
		if got := strings.Contains(out.String(), "ENFORCE IS OFF: nobody is refused"); got != (first == "enforce: off\n") {
			t.Errorf("%q is announced by %q", first, &out)
		}
	}
}
