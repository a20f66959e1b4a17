package policyfile

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/spillgate/spillgate/policy"
)

func listKey(t testing.TB, text string) policy.Part {
	t.Helper()
	if text == "" {
		return policy.Part{}
	}
	p, err := policy.ParsePart(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLists(t *testing.T) {
	net := netip.MustParsePrefix
	day := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		key, text string
		want      []policy.Entry
	}{
		"nothing":           {"", "", nil},
		"comments":          {"", "# a\n\n  # b\n#c", nil},
		"networks":          {"", "203.0.113.0/24\n2001:db8::/32 # why\n 192.0.2.1\t#\n", []policy.Entry{{Network: net("203.0.113.0/24"), Line: 1}, {Network: net("2001:db8::/32"), Line: 2}, {Network: net("192.0.2.1/32"), Line: 3}}},
		"CRLF":              {"", "192.0.2.1\r\n\r\n# a\r\n192.0.2.2 reason=a\r\n", []policy.Entry{{Network: net("192.0.2.1/32"), Line: 1}, {Network: net("192.0.2.2/32"), Line: 4, Reason: "a"}}},
		"a byte order mark": {"", "\ufeff192.0.2.1", []policy.Entry{{Network: net("192.0.2.1/32"), Line: 1}}},
		"IPv4 as IPv6":      {"", "::ffff:192.0.2.1\n::ffff:192.0.2.0/120", []policy.Entry{{Network: net("192.0.2.1/32"), Line: 1}, {Network: net("192.0.2.0/24"), Line: 2}}},
		"everything":        {"", "0.0.0.0/0\n::/0", []policy.Entry{{Network: net("0.0.0.0/0"), Line: 1}, {Network: net("::/0"), Line: 2}}},
		"twice":             {"", "192.0.2.1\n192.0.2.1", []policy.Entry{{Network: net("192.0.2.1/32"), Line: 1}, {Network: net("192.0.2.1/32"), Line: 2}}},
		"fields":            {"", `192.0.2.1 until=2027-01-31 owner=ops reason="a \"b\" # c" # d`, []policy.Entry{{Network: net("192.0.2.1/32"), Line: 1, Until: day, Owner: "ops", Reason: `a "b" # c`}}},
		"a time":            {"", "192.0.2.1 until=2027-01-31T01:00:00+01:00", []policy.Entry{{Network: net("192.0.2.1/32"), Line: 1, Until: day}}},
		"values":            {"header.user-agent", "curl/8\n\"Evil Bot #1\" reason=x\n\"\\ttab\"", []policy.Entry{{Value: "curl/8", Line: 1}, {Value: "Evil Bot #1", Line: 2, Reason: "x"}, {Value: "\ttab", Line: 3}}},
		"a value with a #":  {"user", "a#b # c", []policy.Entry{{Value: "a#b", Line: 1}}},
	} {
		got, err := ParseList("x", []byte(tt.text), listKey(t, tt.key))
		for i := range got {
			if !got[i].Until.IsZero() {
				got[i].Until = got[i].Until.UTC()
			}
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tt.want)
		}
	}
}

func TestBrokenLists(t *testing.T) {
	for name, tt := range map[string]struct {
		key, text, want string
	}{
		"a word":            {"", "# a\nexample.org\n", `x:2:1: value "example.org": want an address or a network such as 203.0.113.0/24; write an address or a network, or # before a comment`},
		"bits beyond":       {"", "  192.0.2.1/24", `x:1:3: value "192.0.2.1/24": has bits beyond its length; write 192.0.2.0/24`},
		"IPv4 in IPv6":      {"", "::ffff:0:0/95", `x:1:1: value "::ffff:0:0/95": a network of IPv4 in IPv6 has at least 96 bits; write it as IPv4`},
		"a range":           {"", "192.0.2.1-192.0.2.9", "x:1:1: "},
		"two a line":        {"", "192.0.2.1 192.0.2.2", `x:1:11: "192.0.2.2" after the entry`},
		"a comma":           {"", "192.0.2.1, 192.0.2.2", "x:1:1: "},
		"an unknown field":  {"", "192.0.2.1 ttl=5", `x:1:11: unknown field "ttl"; known are until, reason and owner`},
		"no such day":       {"", "192.0.2.1 until=2027-02-30", "x:1:11: until: want a date"},
		"no zone":           {"", "192.0.2.1 until=2027-02-03T10:00:00", "name the zone: 2027-02-03T10:00:00Z"},
		"an open quotation": {"user", `"a`, "x:1:1: a quotation mark without its partner"},
		"an empty value":    {"user", `""`, "x:1:1: an empty value"},
		"UTF-16":            {"", "\xff\xfe1\x00", "x:1:1: the text is UTF-16; save it as UTF-8"},
		"no UTF-8":          {"user", "a\n\xff\n", "x:2:1: a line that is not UTF-8"},
		"a NUL":             {"", "192.0.2.1\x00", "x:1:1: "},
		"a long line":       {"", "192.0.2.1 # " + strings.Repeat("x", 1<<20), "x:1:1: a line of 1048588 bytes; at most 4096"},
		"a sea of text":     {"", strings.Repeat("#\n", MaxListSize/2+1), "x:1:1: more than 64 MiB"},
	} {
		entries, err := ParseList("x", []byte(tt.text), listKey(t, tt.key))
		var errs Errors
		if !errors.As(err, &errs) || !strings.Contains(err.Error(), tt.want) || entries != nil {
			t.Errorf("%s: %v; want %s", name, err, tt.want)
		}
	}
	_, err := ParseList("x", []byte(strings.Repeat("a\n", 1000)), policy.Part{})
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != maxListErrors {
		t.Errorf("%d errors of a file of nothing else", len(errs))
	}
}

// Lists are read anew, and what is wrong with one leaves the file as it was.
func TestReadListsAnew(t *testing.T) {
	files := fstest.MapFS{"lists/deny.txt": {Data: []byte("192.0.2.1")}, "lists/users.txt": {Data: []byte("bob")}}
	f, err := ParseFS(files, "p.yaml", []byte(`
rules: [{name: a, key: client.ip, limit: 10/s}]
overrides:
  - {deny: true, list: lists/deny.txt}
  - {exempt: true, list: lists/deny.txt, rule: a}
  - {exempt: true, list: lists/users.txt, key: user}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Lists(); !reflect.DeepEqual(got, []string{"lists/deny.txt", "lists/users.txt"}) {
		t.Errorf("lists: %q", got)
	}
	if n := f.Policy.Overrides().Len(); n != 3 {
		t.Errorf("%d entries", n)
	}
	files["lists/deny.txt"] = &fstest.MapFile{Data: []byte("192.0.2.1\n192.0.2.2")}
	o, err := f.ReadLists()
	if err != nil || o.Len() != 5 {
		t.Errorf("%d entries, %v", o.Len(), err)
	}
	files["lists/deny.txt"] = &fstest.MapFile{Data: []byte("192.0.2.1\noops")}
	var errs Errors
	if _, err := f.ReadLists(); !errors.As(err, &errs) || errs[0].File != "lists/deny.txt" || errs[0].Line != 2 {
		t.Errorf("%v", err)
	}
	delete(files, "lists/deny.txt")
	if _, err := f.ReadLists(); err == nil {
		t.Error("a list that is gone is read")
	}
	if n := f.Policy.Overrides().Len(); n != 3 {
		t.Errorf("%d entries", n)
	}
}

func TestListsThatCantBeRead(t *testing.T) {
	files := fstest.MapFS{"folder/deny.txt": {Data: []byte("oops\n192.0.2.1/8")}}
	for name, tt := range map[string]struct{ list, want string }{
		"gone":      {"deny.txt", "p.yaml:2:32: list: open deny.txt: file does not exist"},
		"a folder":  {"folder", "folder is no file"},
		"above":     {"../deny.txt", "downwards"},
		"absolute":  {"/etc/passwd", "downwards"},
		"not right": {"folder/deny.txt", `p.yaml:2:32: list: folder/deny.txt:1:1: value "oops"`},
	} {
		_, err := ParseFS(files, "p.yaml", []byte("rules: [{name: a, key: client.ip, limit: 10/s}]\noverrides: [{deny: true, list: "+tt.list+"}]"))
		var errs Errors
		if !errors.As(err, &errs) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %s", name, err, tt.want)
		}
	}
	if _, err := Parse("p.yaml", []byte("rules: [{name: a, key: client.ip, limit: 10/s}]\noverrides: [{deny: true, list: deny.txt}]")); err == nil || !strings.Contains(err.Error(), "read by itself") {
		t.Errorf("without files: %v", err)
	}
}

// Entries that have ended are warned of, once a list, unless their override has
// ended with them.
func TestEndedEntriesAreWarnedOf(t *testing.T) {
	for _, tt := range []struct{ list, override, want string }{
		{"192.0.2.1\n\n192.0.2.2 until=2020-01-01\n192.0.2.3 until=2099-01-01\n192.0.2.4 until=2021-01-01", "", "2:32 expired: list: 2 of 4 entries of deny.txt have ended, and have no effect, the first in line 3"},
		{"192.0.2.1\n192.0.2.3 until=2099-01-01", "", ""},
		{"192.0.2.1 until=2020-01-01", ", until: 2020-01-02", "2:49 expired: until: the override has ended, and has no effect"},
	} {
		f, err := ParseFS(fstest.MapFS{"deny.txt": {Data: []byte(tt.list)}}, "p.yaml",
			[]byte("rules: [{name: a, key: client.ip, limit: 10/s}]\noverrides: [{deny: true, list: deny.txt"+tt.override+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range f.Warnings {
			got += fmt.Sprintf("%d:%d %s: %s", w.Line, w.Column, w.Code, w.Msg)
		}
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.list, got, tt.want)
		}
	}
}

func FuzzParseList(f *testing.F) {
	for _, text := range []string{
		"203.0.113.0/24\n2001:db8::/32 # why\n", "192.0.2.1 until=2027-01-31 reason=\"a b\" owner=ops", "\ufeff\"a b\"\r\n", "\xff\xfe", `"`, "\" \"", "\"\t\" until=2027-01-31", "a=\"b\"c", "0.0.0.0/0", "::ffff:1.2.3.4/96",
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, addresses bool) {
		key := policy.Part{}
		if !addresses {
			key = listKey(t, "user lower trim")
		}
		entries, err := ParseList("x", data, key)
		if (err != nil) && len(entries) > 0 {
			t.Fatal("entries of a broken list")
		}
		for _, e := range entries {
			if e.Network.IsValid() != addresses || (e.Value == "") != addresses || e.Line < 1 {
				t.Fatalf("%+v", e)
			}
		}
		p, err := policy.Compile([]policy.Rule{{Name: "a", Deny: true}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.WithOverrides([]policy.Override{{Exempt: true, List: "x", Key: key, Entries: entries}}); err != nil {
			for _, e := range entries {
				if len(e.Reason) > 256 || len(e.Owner) > 256 {
					return
				}
			}
			t.Fatal(err)
		}
	})
}

// What is wrong with a list of secrets is told without them: the gateway logs
// it.
func TestBrokenListsOfSecretsAreToldWithoutThem(t *testing.T) {
	for _, key := range []string{"header.authorization", "cookie.sid", "query.access_token lower"} {
		for _, text := range []string{"Bearer hunter2", "a hunter2=b", `"Bearer hunter2`, `"a" "hunter2"`, "hunter2 until=never", "a\xff hunter2", strings.Repeat("hunter2", 1000)} {
			_, err := ParseList("x", []byte(text), listKey(t, key))
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s, %.40q: %v", key, text, err)
			}
		}
	}
	if _, err := ParseList("x", []byte("curl 8"), listKey(t, "header.user-agent")); err == nil || !strings.Contains(err.Error(), `"8" after the entry`) {
		t.Errorf("what is no secret: %v", err)
	}
}
