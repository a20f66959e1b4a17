// Command limiter guards a login: one limit, and tries of its own for each
// address.
package main

import (
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spillgate/spillgate"
)

func main() {
	// Three tries at once, then one each ten seconds. Must is for limits that
	// stand in the program; spillgate.ParseLimit and New return errors.
	logins := spillgate.Must("1/10s burst 3", spillgate.MaxKeys(100_000))
	for _, ip := range []string{"203.0.113.9", "203.0.113.9", "203.0.113.9", "203.0.113.9", "198.51.100.7"} {
		try(os.Stdout, logins, ip)
	}
}

// try is what a login does before it looks at the password.
func try(w io.Writer, logins *spillgate.Limiter, ip string) {
	d := logins.Take(ip, 1)
	if !d.Allowed {
		fmt.Fprintf(w, "%s: come back in %.0f s\n", ip, math.Ceil(d.RetryAfter.Seconds()))
		return
	}
	fmt.Fprintf(w, "%s: go on, %d left\n", ip, d.Remaining)
}
