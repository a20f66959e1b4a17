package clientip

import (
	"net/netip"
	"strconv"
	"testing"
)

// TestCutV4 holds it against netip, for every text of up to seven pieces of
// which addresses are made.
func TestCutV4(t *testing.T) {
	pieces := []string{"0", "1", "9", "25", "255", "256", ".", ":", "a", "-", "+1", " "}
	var try func(s string, left int)
	try = func(s string, left int) {
		addr, rest, ok := cutV4(s)
		want, err := netip.ParseAddr(s[:len(s)-len(rest)])
		if ok && (err != nil || want != netip.AddrFrom4(addr)) {
			t.Fatalf("cutV4(%q) = %v, %q: netip reads %v, %v", s, addr, rest, want, err)
		}
		if whole, err := netip.ParseAddr(s); !ok && err == nil && whole.Is4() {
			t.Fatalf("cutV4(%q) is nothing: netip reads %v", s, whole)
		}
		if left > 0 {
			for _, p := range pieces {
				try(s+p, left-1)
			}
		}
	}
	for _, s := range []string{"", "10.20.", "1.2.3."} {
		try(s, 4)
	}
	for n := range 2000 {
		for _, part := range []string{strconv.Itoa(n), "0" + strconv.Itoa(n)} {
			s := "198." + part + ".7.9"
			_, _, ok := cutV4(s)
			if _, err := netip.ParseAddr(s); ok != (err == nil) {
				t.Fatalf("cutV4(%q) = %t, netip says %v", s, ok, err)
			}
		}
	}
}
