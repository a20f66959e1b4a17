package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestAppendPath(t *testing.T) {
	tests := []struct{ raw, want string }{
		{"", "/"},
		{"/", "/"},
		{"//", "/"},
		{"/login", "/login"},
		{"login", "/login"},
		{"//login", "/login\x00/"},
		{"/login/", "/login"},
		{"/login//", "/login"},
		{"/%6cogin", "/login"},
		{"/lo%67in", "/login"},
		{"/%6C%6F%67%69%6E", "/login"},
		{"/a/../login", "/login\x00/a/../login"},
		{"/a/b/../../login", "/login\x00/a/b/../../login"},
		{"/../../login", "/login\x00/../../login"},
		{"/./login/.", "/login\x00/./login/."},
		{"/%2e/login", "/login\x00/./login"},
		{"/a/%2E%2e/login", "/login\x00/a/../login"},
		{"/a/.%2e/login", "/login\x00/a/../login"},
		{"/login;a=b", "/login\x00/login;a=b"},
		{"/login;a=b/x", "/login/x\x00/login;a=b/x\x00/login"},
		{"/login;", "/login\x00/login;"},
		{"/a;x/../login", "/login\x00/a/../login\x00/a;x/../login\x00/a"},
		{"/..;/login", "/login\x00/../login\x00/..;/login\x00/\x00/.."},
		{`\login`, "/login\x00/%5Clogin"},
		{`/a\..\login`, "/login\x00/a/../login\x00/a%5C..%5Clogin"},
		{"/a/..", "/\x00/a/.."},
		{"/LOGIN", "/LOGIN"},
		{"/login%2f", "/login%2F\x00/login"},
		{"/a%2fb", "/a%2Fb\x00/a/b"},
		{"/a%5cb", "/a%5Cb\x00/a/b"},
		{"/a%2f%5cb", "/a%2F%5Cb\x00/a%2F/b\x00/a/%5Cb\x00/a/b"},
		{"//x/login", "/x/login\x00/login"},
		{"///u:p@x:80//login", "/u:p@x:80/login\x00/login"},
		{"/%2fx%2flogin", "/%2Fx%2Flogin\x00/x/login\x00/login"},
		{"/%5cx/login", "/%5Cx/login\x00/x/login\x00/login"},
		{"/a%3bb", "/a;b\x00/a"},
		{"/x/a%2f../../login", "/x/login\x00/x/a%2F../../login\x00/login\x00/x/a/../../login"},
		{"/x;%2f../login", "/x/login\x00/x;%2F../login\x00/x\x00/login\x00/x/../login\x00/x;/../login"},
		{"/admin/;/../secret", "/secret\x00/admin/secret\x00/admin/../secret\x00/admin/;/../secret\x00/admin"},
		{"/api/..;/x", "/x\x00/api/../x\x00/api/..;/x\x00/\x00/api/.."},
		{"/login%3fx", "/login?x\x00/login"},
		{"/login%23x/y", "/login#x/y\x00/login"},
		{"/login?x", "/login?x\x00/login"}, // decoded before
		{"/admin//../secret", "/secret\x00/admin/secret\x00/admin/../secret"},
		{"/admin//x/../../secret", "/secret\x00/admin/secret\x00/admin/x/../../secret"},
		{"/a/b//", "/a/b"},
		{"/a%252e", "/a%252e"},
		{"/a%00b", "/a%00b"},
		{"/a%0ab", "/a%0Ab"},
		{"/a%", "/a%"},
		{"/a%4", "/a%4"},
		{"/a%zz", "/a%zz"},
		{"/caf%C3%A9", "/café"},
		{"/a b", "/a b"},
	}
	for _, tt := range tests {
		if got := string(AppendPath(nil, tt.raw)); got != tt.want {
			t.Errorf("AppendPath(%q) = %q, want %q", tt.raw, got, tt.want)
		}
	}
}

func TestAppendPathKeepsWhatStandsBefore(t *testing.T) {
	if got := string(AppendPath([]byte("k="), "/a/../../b")); got != "k=/b\x00/a/../../b" {
		t.Errorf("got %q: .. climbed above the root", got)
	}
}

func FuzzAppendPath(f *testing.F) {
	for _, s := range []string{"/login", "/a/../b", "/%2e%2e/x", "/;/", `\..\`, "/%", "/a%2f..%2fb", "//;a/./", "/v1/a.b/c..d", "/a/.b", "/a/", "a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		readings := strings.Split(string(AppendPath(nil, raw)), "\x00")
		if isNormal(raw) && len(raw) < 64 {
			for n := range everyWay.count() {
				if p, r := everyWay.way(n); string(appendWay(nil, raw, p, r)) != raw {
					t.Fatalf("%q is taken for normal, and is %q", raw, appendWay(nil, raw, p, r))
				}
			}
		}
		if len(readings) > maxReadings+1 {
			t.Fatalf("%q: %d readings", raw, len(readings))
		}
		for i, got := range readings {
			if got == anyReading && i > 0 && i == len(readings)-1 {
				break
			}
			if !strings.HasPrefix(got, "/") {
				t.Fatalf("%q: no leading slash: %q", raw, got)
			}
			if got != "/" && strings.HasSuffix(got, "/") {
				t.Fatalf("%q: trailing slash: %q", raw, got)
			}
			if slices.Contains(readings[:i], got) {
				t.Fatalf("%q: %q twice", raw, got)
			}
			for seg := range strings.SplitSeq(got[1:], "/") {
				if i == 0 && (seg == "." || seg == "..") || seg == "" && got != "/" {
					t.Fatalf("%q: segment %q left in %q", raw, seg, got)
				}
			}
			again := string(AppendPath(nil, got))
			if again != got && !strings.ContainsAny(got, "%;?#\\") && !strings.Contains(got, "/.") {
				t.Fatalf("%q: %q is not its own normal form: %q", raw, got, again)
			}
		}
	})
}
