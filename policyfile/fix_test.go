package policyfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
)

// slips are what people write at first, the place where it stands (%s), and
// what they are told to write.
var slips = []struct{ place, slip, write string }{
	{limitSlip, "5/sec", "5/s"},
	{limitSlip, "100 per minute", "100/min"},
	{limitSlip, "0.5/s", "1/2s"},
	{limitSlip, "2.5/min burst 10", "5/2min burst 10"},
	{limitSlip, "10/month", "10/calendar month"},
	{limitSlip, "1000/calendar days", "1000/calendar day"},
	{limitSlip, `"1,000 requests per hour"`, "1000/h"},
	{limitSlip, "10rps burst=20", "10/s burst 20"},
	{limitSlip, "20 concurrent", "20 at once"},
	{limitSlip, "10/s brust 20", "10/s burst 20"},
	{limitSlip, "10/S Burst 20", "10/s burst 20"},
	{limitSlip, "none", "unlimited"},
	{limitSlip, "1 every 10 seconds", "1/10s"},
	{limitSlip, "100/1h30m", "100/90min"},
	{limitSlip, "10/year", "10/365d"},
	{limitSlip, "{rate: 10, per: s, burst: 20}", "10/s burst 20"},
	{limitSlip, "{limit: 10, window: 1 minute}", "10/min"},
	{limitSlip, "10/calender day", "10/calendar day"},
	{limitSlip, "10/calender dya in Europe/Berlin", "10/calendar day in Europe/Berlin"},
	{limitSlip, "10/secnd bust 20", "10/s burst 20"},
	{limitSlip, "10 at onces", "10 at once"},
	{ttlSlip, "1h30m", "90m"},
	{ttlSlip, "1.5h", "90m"},
	{ttlSlip, "1 minute", "1m"},
	{ttlSlip, "1 month", "30d"},
	{ttlSlip, "1 day and 12 hours", "36h"},
	{ttlSlip, "calendar day", "1d"},
	{"rules: [{name: a, limit: 10/s, key: user, enforce: %s}]", "50%", "50"},
	{"rules: [{name: a, limit: 10/s, key: user, max_keys: %s}]", "0x10", "16"},
	{"rules: [{name: a, limit: 10/s, key: user, max_keys: %s}]", "1_000", "1000"},
	{"rules: [{name: a, limit: 10/s, key: user, max_keys: %s}]", "0", "1, the least"},
	{"rules: [{name: a, limit: 10000/s, cost: %s}]", "1e3", "1000, without a fraction"},
	{"rules: [{name: a, limit: 10/s, cost: %s}]", "11", "10, the most, or limit: 10/s burst 11"},
	{"rules: [{name: a, limit: 10/s, failures: %s}]", `"401, 403"`, "a list: [401, 403]"},
	{"rules: [{name: a, limit: 10/s, failures: %s}]", "4XX", "4xx"},
	{"rules: [{name: a, limit: 10/s, failures: %s}]", "unauthenticated", "UNAUTHENTICATED"},
	{"rules: [{name: a, limit: 10/s, failures: %s}]", "UNAUTHORIZED_DENIED", ""},
	{"rules: [{name: a, limit: 10/s, failures: %s}]", "PERMISION_DENIED", "PERMISSION_DENIED"},
	{"rules: [{name: a, limit: 10/s, failures: %s}]", "panic", "error"},
	{"rules: [{name: %s, limit: 10/s}]", "Visitor", "visitor"},
	{"rules: [{name: %s, limit: 10/s}]", "'Log In!'", "log-in"},
	{"rules: [{name: %s, limit: 10/s}]", "ü", "everybody"},
	{"rules: [{name: a, limit: 10/s}, {name: %s, limit: 10/s}]", "a", "a-2"},
	{"rules: [{name: a, limit: 10/s, unit: %s}]", "LLM tokens", "llm-tokens"},
	{keySlip, "ip", "client.ip"},
	{keySlip, "clinet.ip", "client.ip"},
	{keySlip, "user lowr", "user lower"},
	{keySlip, "PROXY.X-Id", "proxy.x-id"},
	{keySlip, "proxi.x-id", "proxy.x-id"},
	{keySlip, "user else client.ip/56 Secret", "user else client.ip/56 secret"},
	{keySlip, "jwt.sub", "claim.sub"},
	{keySlip, "claims.sub", "claim.sub"},
	{keySlip, "clam.sub trimm", "claim.sub trim"},
	{claimedSlip, "Header.X-User", "header.x-user"},
	{claimedSlip, "user-agent", "header.user-agent"},
	{claimedSlip, "X-User lowr", "header.x-user lower"},
	{claimedSlip, "hedaer.x-user", "header.x-user"},
	{claimedSlip, "cookies.sid", "cookie.sid"},
	{"rules: [{name: a, limit: 10/s, delay: {most: %s}}]", "1h", "5m, the most"},
	{"server: {store: {redis: redis://127.0.0.1, timeout: %s}}\nrules: [{name: a, limit: 10/s}]", "1h", "10s, the most"},
	{keySlip, "Client.IP", "client.ip"},
	{keySlip, "client.ip/8", "client.ip/32"},
	{keySlip, "user or client.ip", "user else client.ip"},
	{keySlip, `"client.ip, host"`, "a list: [client.ip, host]"},
	{keySlip, "{ip: null}", "client.ip"},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "login", "/login"},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "'!login'", `"!/login"`},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "/a/../b/", "/b"},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "'/search?q=x'", "/search"},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "'https://a.example/x?y=1'", "/x"},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "'^/api/.*$'", "/api/**"},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "/api/**/x", "/api/*/x"},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "'*'", "/**"},
	{"rules: [{name: a, limit: 10/s, match: {path: %s}}]", "/a//../b;v=1", "/b"},
	{"rules: [{name: a, limit: 10/s, match: {method: %s}}]", "post", "POST"},
	{"rules: [{name: a, limit: 10/s, match: {method: %s}}]", "PSOT", "POST"},
	{"rules: [{name: a, limit: 10/s, match: {method: %s}}]", "'get, post'", "a list: [GET, POST]"},
	{"rules: [{name: a, limit: 10/s, match: {host: %s}}]", "'Example.com:8080'", "example.com"},
	{"rules: [{name: a, limit: 10/s, match: {host: %s}}]", "'!A.example.'", `"!a.example"`},
	{"rules: [{name: a, limit: 10/s, match: {host: %s}}]", "'https://A.example/'", "a.example"},
	{"rules: [{name: a, limit: 10/s, match: {host: %s}}]", "'a.example, b.example'", "a list: [a.example, b.example]"},
	{"rules: [{name: a, limit: 10/s, match: {host: %s}}]", "'[::1]:80'", `"[::1]"`},
	{"rules: [{name: a, limit: 10/s, match: {client.ip: %s}}]", "10.1.2.3/8", "10.0.0.0/8"},
	{"rules: [{name: a, limit: 10/s, match: {client.ip: %s}}]", "10.1.*", "10.1.0.0/16"},
	{"rules: [{name: a, limit: 10/s, match: {client.ip: %s}}]", "'192.0.2.1:80'", "192.0.2.1"},
	{"rules: [{name: a, limit: 10/s, match: {client.ip: %s}}]", "private", `a list: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, "fc00::/7"]`},
	{"rules: [{name: a, limit: 10/s, match: {client.ip: %s}}]", "'!private'", `a list: ["!10.0.0.0/8", "!172.16.0.0/12", "!192.168.0.0/16", "!fc00::/7"]`},
	{"rules: [{name: a, limit: 10/s, deny: %s}]", "no", "false"},
	{listenSlip, "8080", "127.0.0.1:8080 or :8080"},
	{listenSlip, `"8080"`, "127.0.0.1:8080 or :8080"},
	{listenSlip, "8080:8080", "127.0.0.1:8080 or :8080"},
	{listenSlip, `"*:8080"`, "127.0.0.1:8080 or :8080"},
	{listenSlip, "127.0.0.1:http", "127.0.0.1:8080 or :8080"},
	{listenSlip, "1.2.3:80", "127.0.0.1:8080 or :8080"},
	{listenSlip, "http://127.0.0.1:8080/", "127.0.0.1:8080"},
	{listenSlip, `"::1:8080"`, `"[::1]:8080"`},
	{upstreamSlip, "9000", "http://127.0.0.1:9000"},
	{upstreamSlip, "127.0.0.1:9000", "http://127.0.0.1:9000"},
	{upstreamSlip, "http://9000", "http://127.0.0.1:9000"},
	{upstreamSlip, "a.example", "http://a.example"},
	{upstreamSlip, "https://ann:secret@a.example/x?y=1", "https://a.example/x"},
	{upstreamSlip, "ws://a.example", "http://a.example"},
	{upstreamSlip, "grpc://a.example:50051", "h2c://a.example:50051"},
	{upstreamSlip, "h2c://ann@a.example", "h2c://a.example"},
	{upstreamSlip, "http://a.example//x", "http://a.example/x"},
}

const (
	limitSlip    = "rules: [{name: a, limit: %s}]"
	ttlSlip      = "rules: [{name: a, limit: 10/s, ttl: %s}]"
	keySlip      = "rules: [{name: a, limit: 10/s, key: %s}]"
	claimedSlip  = "rules: [{name: a, limit: 10/s, key: %s}, {name: b, limit: 50/s, key: client.ip}]"
	listenSlip   = "server: {listen: %s}\nrules: [{name: a, limit: 10/s}]"
	upstreamSlip = "server: {upstream: %s}\nrules: [{name: a, limit: 10/s}]"
)

// TestFixesAreOneStep does what the fix says, which must be all that it takes.
func TestFixesAreOneStep(t *testing.T) {
	for _, c := range slips {
		_, err := Parse("x", []byte(strings.Replace(c.place, "%s", c.slip, 1)))
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != 1 {
			t.Errorf("%s: error %v, want one", c.slip, err)
			continue
		}
		if c.write == "" {
			continue
		}
		if want := "write " + c.write; errs[0].Fix != want {
			t.Errorf("%s: the fix is %q, want %q", c.slip, errs[0].Fix, want)
			continue
		}
		for choice := range strings.SplitSeq(strings.TrimPrefix(c.write, "a list: "), " or ") {
			choice, _, _ = strings.Cut(choice, ", the ")
			choice, _, _ = strings.Cut(choice, ", without")
			if strings.HasPrefix(choice, ":") {
				choice = `"` + choice + `"`
			}
			if strings.HasPrefix(choice, "limit:") {
				continue
			}
			text := strings.Replace(c.place, "%s", choice, 1)
			if _, err := Parse("x", []byte(text)); err != nil {
				t.Errorf("%s: after the fix %q: %v", c.slip, choice, err)
			}
		}
	}
}

// TestReportsHaveFixes finds a fix for each error in testdata, but for what
// the YAML library alone knows.
func TestReportsHaveFixes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(file, data)
		var errs Errors
		errors.As(err, &errs)
		for _, e := range errs {
			if e.Fix == "" && !strings.HasPrefix(e.Msg, "not YAML: ") {
				t.Errorf("no fix: %v", e)
			}
		}
	}
}

// TestFixesNameWhatIsMeant looks at what fixes say that are not "write X".
func TestFixesNameWhatIsMeant(t *testing.T) {
	for _, c := range []struct{ place, slip, fix string }{
		{"server: {store: {redis: redis://127.0.0.1, timeout: %s}}\nrules: [{name: a, limit: 10/s}]", "20", "name the unit: 20ms"},
		{"server: {store: {redis: redis://127.0.0.1, timeout: %s}}\nrules: [{name: a, limit: 10/s}]", "5", "name the unit: 5ms or 5s"},
		{"server: {store: %s}\nrules: [{name: a, limit: 10/s}]", "redis://localhost", "write store: {redis: redis://localhost}"},
		{"server: {store: %s}\nrules: [{name: a, limit: 10/s}]", "7", "write store: {redis: redis://127.0.0.1:6379}"},
		{"rules: [{name: a, limit: 10/s, delay: %s}]", "5s", "write delay: {most: 5s}"},
		{"rules: [{name: a, limit: 10/s, backup: %s}]", "http://a.example", "write backup: {upstream: http://a.example}"},
		{ttlSlip, "60", "name the unit: 60s, 60m or 60h"},
		{"rules: %s", "[]", "write at least one, such as rules: [{name: all, limit: 10/s, key: client.ip}]"},
		{"server: {client_ip: {from: x-real-ip, trusted: %s}}\nrules: [{name: a, limit: 10/s}]", "[]", "name at least one"},
		{keySlip, "header.x-user lower upper", "known are lower, trim, secret, shown and else ATTRIBUTE"},
		{keySlip, "user secret shown", "remove one of them"},
		{keySlip, "form.user", "known are client.ip, method, path, host, route, user, tenant, device, header.NAME, cookie.NAME, query.NAME, claim.NAME, attr.NAME, content-length, tls.client, proxy.NAME"},
	} {
		_, err := Parse("x", []byte(strings.Replace(c.place, "%s", c.slip, 1)))
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Fix != c.fix {
			t.Errorf("%s: error %v, want one with the fix %q", c.slip, err, c.fix)
		}
	}
}

func TestFormatPeriod(t *testing.T) {
	for text, want := range map[string]string{"3d": "3d", "72h": "3d", "90m": "90m", "1h": "1h", "1w": "7d", "1500ms": "1500ms", "1us": "1us", "7ns": "7ns", "60s": "1m"} {
		f, err := Parse("x", []byte(strings.Replace(ttlSlip, "%s", text, 1)))
		if err != nil {
			t.Error(err)
			continue
		}
		d := f.Policy.Rules()[0].TTL
		if got := FormatPeriod(d); got != want {
			t.Errorf("%s is written %s, want %s", text, got, want)
		}
		if again := spoken(want); again != d {
			t.Errorf("%s is read as %s, want %s", want, again, d)
		}
	}
	if got := FormatPeriod(366 * 24 * time.Hour); got != "366d" {
		t.Errorf("366 days are %s", got)
	}
}

func TestAdvice(t *testing.T) {
	for _, c := range []struct{ msg, wrong, fix string }{
		{"it is bad; write good", "it is bad", "write good"},
		{"it is bad: use good; write better", "it is bad", "use good; write better"},
		{`value "x; write y": bad`, `value "x; write y": bad`, ""},
		{`value "\"; write y": bad; add z`, `value "\"; write y": bad`, "add z"},
		{"nothing to do", "nothing to do", ""},
		{"", "", ""},
	} {
		if wrong, fix := advice(c.msg); wrong != c.wrong || fix != c.fix {
			t.Errorf("%q is %q and %q", c.msg, wrong, fix)
		}
	}
}

func TestBeyondGateway(t *testing.T) {
	const rule = "rules: [{name: a, limit: 10/s, key: user}]"
	f, err := Parse("x", []byte(rule))
	if err != nil || f.ForGateway {
		t.Fatalf("a file for a program: %v", err)
	}
	var errs Errors
	if err := f.BeyondGateway(); !errors.As(err, &errs) || len(errs) != 1 || errs[0].Column != 37 {
		t.Errorf("in the gateway: %v", err)
	}
	if _, err := Parse("x", []byte("server: {headers: on}\n"+rule)); err == nil {
		t.Error("a file for the gateway has a user")
	}
	f, err = Parse("x", []byte("rules: [{name: a, limit: 10/s, key: client.ip}]"))
	if err != nil || f.BeyondGateway() != nil {
		t.Errorf("by address: %v, %v", err, f.BeyondGateway())
	}
}

func TestTooManyRulesForOneRequest(t *testing.T) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range spillgate.MaxCharges + 2 {
		fmt.Fprintf(&text, "- {name: r%d, limit: 1/s}\n", i)
	}
	_, err := Parse("x", []byte(text.String()))
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Line != spillgate.MaxCharges+2 || !strings.HasPrefix(errs[0].Fix, "add a match") {
		t.Errorf("error %v, want one in line %d", err, spillgate.MaxCharges+2)
	}
}
