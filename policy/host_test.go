package policy

import "testing"

func TestAppendHost(t *testing.T) {
	for host, want := range map[string]string{
		"example.com": "example.com", "EXAMPLE.com": "example.com", "example.com.": "example.com", "example.com:443": "example.com",
		"example.com.:443": "example.com", "example.com..": "example.com", "": "", ".": "", ":80": "",
		"203.0.113.9:80": "203.0.113.9", "[::1]": "[::1]", "[::1]:443": "[::1]", "[0:0::0:1]:443": "[::1]", "[2001:DB8::A]": "[2001:db8::a]",
		"[::1": "[::1", "[x]:80": "[x]", "a:b:c": "a", "[FE80::1%25eth0]:80": "[fe80::1%25eth0]", "[]": "[]",
	} {
		if got := string(AppendHost(nil, host)); got != want {
			t.Errorf("%q: %q; want %q", host, got, want)
		}
	}
}
