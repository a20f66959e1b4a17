package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// announce says that the gateway serves, and for the demo what to try.
func announce(w io.Writer, path string, file *policyfile.File, listen net.Addr, server *policyfile.Server, demo bool) {
	base, curl := fmt.Sprintf("http://%s", listen), "curl -i"
	if server.TLS != (policyfile.TLS{}) {
		base, curl = fmt.Sprintf("https://%s", listen), "curl -k -i"
	}
	fmt.Fprintf(w, "spillgate limits %s in front of %s by %s (%s)\n",
		base, server.Upstream, path, plural(len(file.Policy.Rules()), "rule"))
	if !file.Policy.Enforced() {
		fmt.Fprintln(w, enforceOff)
	}
	if !demo {
		return
	}
	fmt.Fprint(w, "\nTry, in another terminal:\n\n")
	seen := map[policyfile.Headers]string{
		policyfile.HeadersOn:       "see the RateLimit fields",
		policyfile.HeadersRefusals: "RateLimit fields stand in refusals only (headers: refusals)",
		policyfile.HeadersOff:      "no answer has RateLimit fields (headers: off)",
	}[server.Headers]
	first, ok := firstTry(file.Policy, listen.String())
	if !ok {
		first, seen = try{path: "/"}, "no rule limits this; spillgate explain says of each rule why"
	}
	fmt.Fprintf(w, "  %s %s%s%-19s # %s\n", curl, first.flags(), base, first.path, seen)
	if slices.ContainsFunc(file.Policy.Rules(), func(r policy.Rule) bool { return r.Name == "report" }) { // that of the quick start
		fmt.Fprintf(w, `  %[1]s -X POST %[2]s/report     # passes: one report a minute
  %[1]s -X POST %[2]s/report     # refused, and told when to come back
`, curl, base)
	}
	fmt.Fprint(w, "\nCtrl-C stops.\n")
}

// A try is a request for curl.
type try struct{ method, host, path string }

// flags are those of curl, with a blank behind.
func (t try) flags() (flags string) {
	if t.method != "" && t.method != http.MethodGet {
		flags = "-X " + t.method + " "
	}
	if t.host != "" {
		flags += "-H 'Host: " + t.host + "' "
	}
	return flags
}

// firstTry returns a request at that address to which a limit of the policy says
// something: of the front page, else one that a rule names.
func firstTry(p *policy.Policy, address string) (try, bool) {
	all := []try{{path: "/"}}
	for _, r := range p.Rules() {
		t := try{path: "/"}
		for _, c := range r.Match {
			for into, kind := range map[*string]policy.Kind{&t.method: policy.Method, &t.host: policy.Host, &t.path: policy.Path} {
				i := slices.IndexFunc(c.Values, func(v string) bool { return !strings.HasPrefix(v, "!") })
				if c.Attribute.Kind == kind && i >= 0 {
					*into = strings.NewReplacer("**", "x", "*", "x").Replace(c.Values[i])
				}
			}
		}
		all = append(all, t)
	}
	for _, t := range all {
		if limits(p, address, t) {
			return t, true
		}
	}
	return try{}, false
}

// limits reports whether a limit that clients hear of says something to a request.
func limits(p *policy.Policy, address string, t try) bool {
	// A shell takes nothing in these for its own.
	if strings.ContainsFunc(t.method+t.host+t.path, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune("\"$&'();<>?[\\]`{|}*#!", c)
	}) {
		return false
	}
	u, err := url.ParseRequestURI(t.path)
	if err != nil {
		return false
	}
	r := &http.Request{Method: t.method, URL: u, Host: t.host, Header: make(http.Header), RemoteAddr: "127.0.0.1"}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Host == "" {
		r.Host = address
	}
	x := p.Explain(httplimit.Attributes(p, r))
	return slices.ContainsFunc(x.Rules, func(at policy.Explained) bool {
		return at.Outcome != nil && at.Outcome.Judged() && !at.Rule.Hide
	})
}
