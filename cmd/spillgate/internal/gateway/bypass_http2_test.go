package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// The bypass suite over HTTP/2: the tricks of HTTP/1 that can be written in it,
// and those that only it has.

// A trick2 sends the n-th request, in whatever frames, and returns the streams
// whose ends are to be awaited.
type trick2 struct {
	name     string
	write    func(w *wire, n int) []uint32
	rejected bool // nothing may come through at all
	chance   bool // how many come through is chance, maybe none
	rules    []policy.Rule
	over     []policy.Override
	proxy    bool
	paths    policy.Paths
	count    func(r *http.Request) bool
}

// translated returns the trick over HTTP/2, if its n-th text is one request
// without a body. There a target is a path and nothing else.
func (c trick) translated() (trick2, bool) {
	paths := 0
	for n := range attempts {
		fields := fieldsOf(c.write(n))
		if fields == nil {
			return trick2{}, false
		}
		if strings.HasPrefix(fields[7], "/") {
			paths++
		}
	}
	return trick2{
		name: c.name, rejected: c.rejected || paths == 0, rules: c.rules, over: c.overrides, proxy: c.proxy, paths: c.paths, count: c.count,
		write: func(w *wire, n int) []uint32 { return []uint32{w.ask(fieldsOf(c.write(n))...)} },
	}, true
}

// fieldsOf reads a request of HTTP/1.1 as loosely as may be, nil if it is not
// one without a body.
func fieldsOf(text string) (fields []string) {
	head, rest, ok := strings.Cut(text, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	line := strings.Split(lines[0], " ")
	if !ok || rest != "" || len(line) != 3 || line[2] != "HTTP/1.1" {
		return nil
	}
	var more []string
	authority := ""
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.ToLower(name), strings.TrimSpace(value)
		switch {
		case name == "host" && authority == "":
			authority = value
		case name == "connection" && value == "close" || name == "content-length" && value == "0":
		case !ok || strings.Trim(name, " ") != name || name == "transfer-encoding" || name == "connection" || name == "upgrade":
			return nil
		default:
			more = append(more, name, value)
		}
	}
	return append([]string{":method", line[0], ":scheme", "https", ":authority", authority, ":path", line[1]}, more...)
}

// login2 is the login as everybody writes it, with other and further fields.
func login2(fields ...string) []string {
	all := []string{":method", "POST", ":scheme", "https", ":authority", "x", ":path", "/login"}
	var more []string
	for i := 0; i < len(fields); i += 2 {
		at := -1
		for j := 0; j < len(all); j += 2 {
			if all[j] == fields[i] {
				at = j
			}
		}
		if at >= 0 {
			all[at+1] = fields[i+1]
		} else {
			more = append(more, fields[i:i+2]...)
		}
	}
	return append(all, more...)
}

// bypassTricks2 returns the tricks on a gateway of that scheme.
func bypassTricks2(t *testing.T, scheme string) (tricks []trick2) {
	for _, c := range bypassTricks(t) {
		if c2, ok := c.translated(); ok {
			tricks = append(tricks, c2)
		}
	}
	asks := func(fields func(n int) []string) func(w *wire, n int) []uint32 {
		return func(w *wire, n int) []uint32 { return []uint32{w.ask(fields(n)...)} }
	}
	each := func(name string, values ...string) func(w *wire, n int) []uint32 {
		return asks(func(n int) []string { return login2(name, values[n%len(values)]) })
	}
	always := func(fields ...string) func(w *wire, n int) []uint32 {
		return asks(func(int) []string { return fields })
	}
	hosted := []policy.Rule{rule(t, "login", "3/h burst 3", []string{"host"}, "path", "/login", "host", "x.test")}
	return append(tricks,
		trick2{name: "none, over HTTP/2", write: always(login2()...)},
		// Fields that are none of HTTP/1.
		trick2{name: "a path without a slash", rejected: true, write: each(":path", "login", "", "?/login", "#/login", "login/../login")},
		trick2{name: "a path that is a URL", rejected: true, write: each(":path", "https://x/login", "https://other.test//login", "http://x/a/../login")},
		trick2{name: "a path with a fragment", write: each(":path", "/login#a", "/login?#", "/login", "/login#/../x")},
		trick2{name: "a path with blanks", write: each(":path", "/login", "/x/../login ", "/login HTTP/1.1", "/ /../login", "/login\t")},
		trick2{name: "a path with line ends", rejected: true, write: each(":path", "/login\r\nX: y", "/login\n", "/x HTTP/1.1\r\n\r\nPOST /login", "/login\x00")},
		trick2{name: "an authority with a user", rejected: true, write: each(":authority", "u:p@x", "@x")},
		trick2{name: "an authority that is none", rejected: true, write: each(":authority", "x/../y", "x y", "x\r\nX-Forwarded-For: 1.2.3.4", "x?y", "x#", "")},
		trick2{name: "an authority and another host", rejected: true, rules: hosted, write: asks(func(n int) []string {
			return login2(":authority", "x.test", "host", fmt.Sprintf("h%d.test", n))
		})},
		trick2{name: "a host and no authority", write: asks(func(n int) []string {
			return append([]string{":method", "POST", ":scheme", "https", ":path", "/login"}, "host", fmt.Sprintf("h%d.test", n))
		})},
		trick2{name: "an authority and the host", rules: hosted, write: always(login2(":authority", "x.test", "host", "X.test")...)},
		trick2{name: "two authorities", rejected: true, write: always(":method", "POST", ":scheme", "https", ":authority", "x", ":authority", "y", ":path", "/login")},
		trick2{name: "two paths", rejected: true, write: always(":method", "POST", ":scheme", "https", ":authority", "x", ":path", "/x", ":path", "/login")},
		trick2{name: "two methods", rejected: true, write: always(":method", "GET", ":method", "POST", ":scheme", "https", ":authority", "x", ":path", "/login")},
		trick2{name: "a pseudo-field after the others", rejected: true, write: always(":method", "POST", ":scheme", "https", ":authority", "x", "a", "b", ":path", "/login")},
		trick2{name: "a pseudo-field that is none", rejected: true, write: always(login2(":status", "200")...)},
		trick2{name: "any scheme", write: each(":scheme", "http", "https"), count: func(r *http.Request) bool { return r.Header.Get("X-Forwarded-Proto") == scheme }},
		trick2{name: "another scheme", rejected: true, write: each(":scheme", "ftp", "", "https://x/login?")},
		trick2{name: "methods that are none", rejected: true, write: each(":method", "", "POST /login HTTP/1.1\r\n", "PO ST", "POST\t", "(POST)", "GET /x")},
		trick2{name: "a key with blanks around it", rules: []policy.Rule{
			rule(t, "own", "3/h burst 3", []string{"header.x-api-key"}), rule(t, "address", "1000/h burst 1000", []string{"client.ip"}),
		}, count: brings("X-Api-Key"), write: each("x-api-key", "T", " T", "T ", "\tT", "  T", " \tT ")},
		trick2{name: "methods in any case", write: each(":method", "POST", "post", "Post"),
			count: func(r *http.Request) bool { return r.Method == "POST" }},
		trick2{name: "a tunnel", rejected: true, write: asks(func(n int) []string {
			if n%2 == 0 {
				return []string{":method", "CONNECT", ":authority", "x:443"}
			}
			return []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "x", ":path", "/login"}
		})},
		trick2{name: "the preface as a method", rejected: true, write: always(":method", "PRI", ":scheme", "https", ":authority", "x", ":path", "*")},
		trick2{name: "upper-case names", rejected: true, write: always(login2("X-Forwarded-For", "203.0.113.1")...)},
		trick2{name: "names with line ends", rejected: true, write: asks(func(n int) []string {
			return login2([]string{"a\r\nx-forwarded-for", "a: b\r\nc", "a b", ":a", ""}[n%5], "203.0.113.1")
		})},
		trick2{name: "values with line ends", rejected: true, write: each("a", "b\r\nX-Forwarded-For: 203.0.113.1", "b\nc", "b\x00")},
		trick2{name: "fields of a connection", rejected: true, write: asks(func(n int) []string {
			names := []string{"connection", "upgrade", "transfer-encoding", "keep-alive", "proxy-connection", "te"}
			return login2(names[n%len(names)], []string{"x-forwarded-for", "h2c", "chunked"}[n%3])
		})},
		trick2{name: "a forwarded address in many fields", write: asks(func(n int) []string {
			return login2("x-forwarded-for", fmt.Sprintf("203.0.113.%d", n), "x-forwarded-for", "203.0.113.9", "forwarded", fmt.Sprintf("for=198.51.100.%d", n))
		})},
		trick2{name: "a forwarded address in many fields, behind a proxy", proxy: true, write: asks(func(n int) []string {
			return login2("x-forwarded-for", fmt.Sprintf("198.51.100.%d", n), "x-forwarded-for", "203.0.113.9")
		})},
		trick2{name: "crumbs of a cookie", write: asks(func(n int) []string {
			return login2("cookie", "a=b", "cookie", fmt.Sprintf("session=%d", n))
		}), rules: []policy.Rule{
			rule(t, "own", "2/h burst 2", []string{"cookie.session"}, "path", "/login"), rule(t, "login", "3/h burst 3", []string{"client.ip"}, "path", "/login"),
		}},
		trick2{name: "a length that is none", write: each("content-length", "5", "-1", "+0", "abc", "99999999999999999999", "0")},

		// Frames.
		trick2{name: "in pieces", write: func(w *wire, n int) []uint32 {
			id, block := w.stream(), w.pack(login2("x-forwarded-for", fmt.Sprintf("203.0.113.%d", n))...)
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1], EndStream: true, PadLength: 9})
			for i := 1; i < len(block); i++ {
				_ = w.WriteContinuation(id, i == len(block)-1, block[i:i+1])
			}
			return []uint32{id}
		}},
		trick2{name: "another stream in between", rejected: true, write: func(w *wire, n int) []uint32 {
			id, block := w.stream(), w.pack(login2()...)
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1], EndStream: true})
			return []uint32{w.ask(login2()...)}
		}},
		trick2{name: "a stream used again", write: func(w *wire, n int) []uint32 {
			id := w.ask(login2()...)
			w.await(id)
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2()...), EndHeaders: true, EndStream: true})
			return []uint32{id}
		}},
		trick2{name: "streams of the server", rejected: true, write: func(w *wire, n int) []uint32 {
			id := w.stream() + 1
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2()...), EndHeaders: true, EndStream: true})
			return []uint32{id}
		}},
		trick2{name: "all at once", write: func(w *wire, n int) (ids []uint32) {
			for range attempts {
				ids = append(ids, w.ask(login2()...))
			}
			return ids
		}},
		trick2{name: "taken back at once", chance: true, write: func(w *wire, n int) []uint32 {
			for range attempts {
				_ = w.WriteRSTStream(w.ask(login2()...), http2.ErrCodeCancel)
			}
			return []uint32{w.ask(login2()...)}
		}},
		trick2{name: "a promise", rejected: true, write: func(w *wire, n int) []uint32 {
			id := w.stream()
			_ = w.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: id + 1, BlockFragment: w.pack(login2()...), EndHeaders: true})
			return []uint32{id}
		}},
		trick2{name: "fields after the body", write: func(w *wire, n int) []uint32 {
			id := w.stream()
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2("trailer", "x-forwarded-for")...), EndHeaders: true})
			_ = w.WriteData(id, false, []byte("hello"))
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack("x-forwarded-for", "203.0.113.1"), EndHeaders: true, EndStream: true})
			return []uint32{id}
		}},
		trick2{name: "a path after the body", rejected: true, write: func(w *wire, n int) []uint32 {
			id := w.stream()
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2(":path", "/x")...), EndHeaders: true})
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(":path", "/login"), EndHeaders: true, EndStream: true})
			return []uint32{id}
		}},
		trick2{name: "a request in the body", write: func(w *wire, n int) []uint32 {
			id := w.stream()
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2(":path", "/x", "content-length", "abc")...), EndHeaders: true})
			_ = w.WriteData(id, true, []byte("0\r\n\r\n"+login()+login()))
			return append([]uint32{id}, w.ask(login2()...))
		}},
		trick2{name: "a body of another length", rejected: true, write: func(w *wire, n int) []uint32 {
			id := w.stream()
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(login2(":path", "/x", "content-length", "5")...), EndHeaders: true})
			_ = w.WriteData(id, true, []byte("hello"+login()))
			return []uint32{id}
		}},
	)
}

func TestBypassOverHTTP2(t *testing.T) { testBypass2(t, "https", overTLS(t), dial2) }

func TestBypassOverH2C(t *testing.T) { testBypass2(t, "http", overH2C, dialH2C) }

func testBypass2(t *testing.T, scheme string, spoken func(*gateway.Config), dial func(t testing.TB, from, to string, settings ...http2.Setting) *wire) {
	tricks := bypassTricks2(t, scheme)
	if len(tricks) < 70 {
		t.Errorf("%d tricks: those of HTTP/1 are missing", len(tricks))
	}
	for _, c := range tricks {
		t.Run(c.name, func(t *testing.T) {
			f, up, peer := scene{c.rules, c.over, c.proxy, c.paths, c.count}.serve(t, spoken, func(g *gateway.Config) {
				g.Timeouts.Idle, g.Timeouts.Header, g.Timeouts.Stall = 2*time.Second, 2*time.Second, 200*time.Millisecond
			})
			w := dial(t, peer, f.addr)
			for n := range attempts {
				out := w.await(c.write(w, n)...)
				for _, status := range out.status {
					if status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported {
						t.Errorf("request %d: status %d", n, status)
					}
				}
				if out.over {
					w = dial(t, peer, f.addr)
				}
			}
			up.held(t, c.rejected, c.chance)
			if text := f.log.String(); strings.Contains(text, "panic") || strings.Contains(text, "goroutine") {
				t.Errorf("log: %s", text)
			}
		})
	}
}
