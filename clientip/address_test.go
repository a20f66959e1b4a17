package clientip

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseGivesTheNormalForm(t *testing.T) {
	for text, want := range map[string]string{
		"1.2.3.4":                  "1.2.3.4",
		"1.2.3.4:80":               "1.2.3.4",
		"::ffff:1.2.3.4":           "1.2.3.4",
		"::ffff:102:304":           "1.2.3.4",
		"0:0:0:0:0:ffff:0102:0304": "1.2.3.4",
		"::FFFF:1.2.3.4":           "1.2.3.4",
		"::ffff:1.2.3.4%eth0":      "1.2.3.4",
		"[::ffff:1.2.3.4]:443":     "1.2.3.4",
		"[1.2.3.4]:443":            "1.2.3.4",
		"64:ff9b::1.2.3.4":         "1.2.3.4",
		"64:ff9b::c000:221":        "192.0.2.33", // the example of RFC 6052 section 2.4
		"[64:ff9b::1.2.3.4%3]:80":  "1.2.3.4",
		"64:ff9b::10.0.0.1":        "64:ff9b::a00:1",
		"64:ff9b::127.0.0.1":       "64:ff9b::7f00:1",
		"64:ff9b::100.64.0.1":      "64:ff9b::6440:1",
		"64:ff9b::172.31.0.1":      "64:ff9b::ac1f:1",
		"64:ff9b::172.32.0.1":      "172.32.0.1",
		"64:ff9b::240.0.0.1":       "64:ff9b::f000:1",
		"64:ff9b::":                "64:ff9b::",
		"64:ff9b:1::1.2.3.4":       "64:ff9b:1::102:304", // RFC 8215: local use
		"2001:db8::1":              "2001:db8::1",
		"2001:0DB8:0::0001":        "2001:db8::1",
		"[2001:db8::1]":            "2001:db8::1",
		"[2001:db8::1]:65535":      "2001:db8::1",
		"fe80::1%eth0":             "fe80::1",
		"fe80::1%eth0.100":         "fe80::1",
		"[fe80::1%25eth0]:443":     "fe80::1",
		"fe80::1%":                 "fe80::1",
		"::1":                      "::1",
		"::":                       "::",
		"0.0.0.0":                  "0.0.0.0",
	} {
		got, err := Parse(text)
		if err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", " ", "unknown", "_x", "localhost", "localhost:80", "example.org", "1.2.3", "1.2.3.4.5", "1.2.3.4 ", " 1.2.3.4",
		"01.2.3.4", "1.2.3.4:", "1.2.3.4:-1", "1.2.3.4:65536", "1.2.3.4:80:80", "1.2.3.4%eth0", "1.2.3.4%eth0:80", "1.2.3.4/32", ":80", ":", "[", "]", "[]",
		"[]:80", "[::1", "::1]", "[::1]80", "[::1]:", "[::1]:http", "[[::1]]", ":::", "1::2::3", "12345::", "%eth0", "[%eth0]:80", "@", "/run/x.sock", "unix:",
		"::ffff:1.2.3.4:80.1", "\x00", "1.2.3.4\x00", "\xff\xfe", strings.Repeat(":", 1000), "::1%" + strings.Repeat("x", 1<<20),
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%.40q) = %v, want an error", text, got)
		} else if !strings.HasPrefix(err.Error(), "clientip: ") || len(err.Error()) > 500 {
			t.Errorf("Parse(%.40q): error %.600q", text, err)
		}
	}
}

func TestNormalOfOddAddresses(t *testing.T) {
	if got := Normal(netip.Addr{}); got.IsValid() {
		t.Errorf("Normal of the zero Addr = %v", got)
	}
	for _, a := range []string{"::ffff:1.2.3.4%z", "fe80::1%z", "64:ff9b::1.2.3.4%z", "64:ff9b::10.0.0.1%z"} {
		got := Normal(netip.MustParseAddr(a))
		if got.Zone() != "" || got.Is4In6() || Normal(got) != got {
			t.Errorf("Normal(%s) = %v", a, got)
		}
	}
}

func TestGroup(t *testing.T) {
	tests := []struct {
		addr   string
		v4, v6 int
		want   string
	}{
		{"203.0.113.9", 0, 0, "203.0.113.9/32"},
		{"203.0.113.9", 24, 0, "203.0.113.0/24"},
		{"203.0.113.9", 99, 0, "203.0.113.9/32"},
		{"203.0.113.9", -1, 0, "203.0.113.9/32"},
		{"::ffff:203.0.113.9", 0, 0, "203.0.113.9/32"},
		{"64:ff9b::203.0.113.9", 24, 0, "203.0.113.0/24"},
		{"64:ff9b::10.0.0.1", 0, 0, "64:ff9b::a00:1/128"},
		{"64:ff9b::10.0.0.1", 24, 0, "64:ff9b::a00:0/120"},
		{"2001:db8:1:2::1", 0, 0, "2001:db8:1:2::/64"},
		{"2001:db8:1:2::64", 0, 0, "2001:db8:1:2::/64"},
		{"2001:db8:1:3::1", 0, 0, "2001:db8:1:3::/64"},
		{"2001:db8:1234:5678::1.2.3.4", 0, 0, "2001:db8:1234:5678::/64"},
		{"2001:db8:1:2ff::1", 0, 56, "2001:db8:1:200::/56"},
		{"2001:db8:1:2::1", 0, 48, "2001:db8:1::/48"},
		{"2001:db8:1:2::1", 0, 128, "2001:db8:1:2::1/128"},
		{"2001:db8:1:2::1", 0, 1 << 40, "2001:db8:1:2::1/128"},
		{"2001:db8:1:2::1", 0, -1 << 40, "2001:db8:1:2::/64"},
		{"fe80::1%eth0", 0, 0, "fe80::/64"},
	}
	for _, tt := range tests {
		if got := Group(netip.MustParseAddr(tt.addr), tt.v4, tt.v6); got.String() != tt.want {
			t.Errorf("Group(%s, %d, %d) = %v, want %s", tt.addr, tt.v4, tt.v6, got, tt.want)
		}
	}
	if got := Group(netip.Addr{}, 0, 0); got != (netip.Prefix{}) {
		t.Errorf("Group of the zero Addr = %v", got)
	}
}
