package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
)

// The policy of a service that shows people's laptops to the world, in front
// of nginx as the program that serves the tunnels.
const tunnels = `
	location = /login {
		if ($request_method = GET) { return 200 "form $http_spillgate_remaining"; }
		if ($arg_password = "right") { return 200 "welcome $http_spillgate_remaining"; }
		return 401 "wrong $http_spillgate_remaining";
	}
	location / { return 200 "page $http_host"; }`

func startTunnels(t *testing.T) *process {
	t.Helper()
	ng := nginxtest.Start(t, tunnels)
	return start(t, "../../examples/tunnel.yaml", "--upstream", "http://"+ng.Addr)
}

// A visitor who is over their own limit does not use up the tunnel's budget.
func TestGreedyVisitorTakesNothingFromOthers(t *testing.T) {
	ng := nginxtest.Start(t, tunnels)
	own := "  - {name: visitor, key: client.ip, limit: 3/h burst 3}\n"
	shared := "  - {name: tunnel, key: host, limit: 10/h burst 10}\n"
	for order, rules := range map[string]string{"own first": own + shared, "shared first": shared + own} {
		t.Run(order, func(t *testing.T) {
			p := start(t, "rules:\n"+rules, "--upstream", "http://"+ng.Addr)
			greedy := visitor(t, "127.0.0.1")
			var passed int
			for range 50 {
				if ask(t, greedy, "GET", p.url, "a.tunnel.example").status == 200 {
					passed++
				}
			}
			if passed != 3 {
				t.Errorf("the greedy one: %d of 50, want 3", passed)
			}
			passed = 0
			for i := range 20 {
				got := ask(t, visitor(t, fmt.Sprintf("127.0.1.%d", i+1)), "GET", p.url, "a.tunnel.example")
				if got.status == 200 {
					passed++
				} else if got.status != 429 || !strings.Contains(got.body, "tunnel") {
					t.Errorf("visitor %d: %d %s", i, got.status, got.body)
				}
			}
			if passed != 7 {
				t.Errorf("the others: %d of 20, want 7", passed)
			}
			// A full tunnel charged nobody: at another one each has their own three.
			other := visitor(t, "127.0.1.20") // was refused above
			for i := range 3 {
				if got := ask(t, other, "GET", p.url, "b.tunnel.example"); got.status != 200 {
					t.Errorf("try %d at another tunnel by one whom the full tunnel refused: %d", i, got.status)
				}
			}
		})
	}
}

func TestTunnelLimitsVisitorsAndTunnels(t *testing.T) {
	p := startTunnels(t)
	began := time.Now()
	count := func(c *http.Client, host string, n int) (passed, refused int) {
		for range n {
			switch got := ask(t, c, "GET", p.url, host, "X-Forwarded-For", fmt.Sprint("203.0.113.", n)); got.status {
			case 200:
				passed++
			case 429:
				refused++
			}
		}
		return passed, refused
	}
	// burst 20 at once, and ten a second for as long as it took.
	passed, refused := count(visitor(t, "127.0.0.1"), "a.tunnel.example", 300)
	if most := 20 + int(time.Since(began).Seconds()*10) + 1; passed < 20 || passed > most || passed+refused != 300 {
		t.Errorf("one visitor: %d passed and %d were refused of 300, want 20 to %d to pass", passed, refused, most)
	}
	if passed, _ := count(visitor(t, "127.0.0.2"), "a.tunnel.example", 15); passed != 15 {
		t.Errorf("another visitor of the same tunnel: %d of 15", passed)
	}
	// Many visitors of one tunnel: burst 200, and a hundred a second.
	began, passed = time.Now(), 0
	for i := range 40 {
		n, _ := count(visitor(t, fmt.Sprintf("127.0.2.%d", i+1)), "b.tunnel.example", 15)
		passed += n
	}
	if most := 200 + int(time.Since(began).Seconds()*100) + 1; passed < 200 || passed > most {
		t.Errorf("40 visitors of one tunnel: %d of 600 passed, want 200 to %d", passed, most)
	}
	// Who asks for no tunnel is under none of these rules.
	if passed, _ := count(visitor(t, "127.0.0.1"), "www.example", 300); passed != 300 {
		t.Errorf("no tunnel: %d of 300", passed)
	}
}

func TestPasswordTries(t *testing.T) {
	p := startTunnels(t)
	guest, other := visitor(t, "127.0.0.1"), visitor(t, "127.0.0.2")
	form := func(c *http.Client, host string) string { return ask(t, c, "GET", p.url+"/login", host).body }
	wrong := func(c *http.Client, host string) reply {
		return ask(t, c, "POST", p.url+"/login?password=guess", host)
	}
	right := func(c *http.Client, host string) reply {
		return ask(t, c, "POST", p.url+"/login?password=right", host)
	}
	const a, b = "a.tunnel.example", "b.tunnel.example"

	// To look costs nothing, and the program behind knows what is left.
	// (Each visitor sends 20 requests at most here, which is their own burst.)
	if got, want := form(guest, a), `form "password";r=10`; got != want {
		t.Errorf("before: %s, want %s", got, want)
	}
	// What the client says of it is not believed.
	if got := ask(t, guest, "GET", p.url+"/login", a, "Spillgate-Remaining", `"password";r=99`); got.body != `form "password";r=10` {
		t.Errorf("claimed: %s", got.body)
	}
	for i := range 9 {
		if got, want := wrong(guest, a), fmt.Sprintf(`wrong "password";r=%d`, 9-i); got.status != 401 || got.body != want {
			t.Errorf("wrong %d: %d %s, want %s", i, got.status, got.body, want)
		}
	}
	if got, want := form(guest, a), `form "password";r=1`; got != want {
		t.Errorf("after nine: %s, want %s", got, want)
	}
	// A right password is given back, as often as it comes.
	for range 2 {
		if got := right(guest, a); got.status != 200 {
			t.Errorf("right: %d %s", got.status, got.body)
		}
	}
	if got, want := form(guest, a), `form "password";r=1`; got != want {
		t.Errorf("after right ones: %s, want %s", got, want)
	}
	wrong(guest, a)
	refused := wrong(guest, a)
	if refused.status != 429 || refused.header.Get("Retry-After") != "10" && refused.header.Get("Retry-After") != "9" {
		t.Errorf("the eleventh: %d, Retry-After %s", refused.status, refused.header.Get("Retry-After"))
	}
	if got := right(guest, a); got.status != 429 {
		t.Errorf("a right one once the tries are used up: %d", got.status)
	}
	if got, want := form(guest, a), `form "password";r=0`; got != want {
		t.Errorf("at the end: %s, want %s", got, want)
	}
	// Other tunnels and other visitors have their own.
	if got, want := form(guest, b), `form "password";r=10`; got != want {
		t.Errorf("another tunnel: %s, want %s", got, want)
	}
	if got, want := form(other, a), `form "password";r=10`; got != want {
		t.Errorf("another visitor: %s, want %s", got, want)
	}
}

// At most 1,024 visitors are told apart; those who come on top share one limit,
// and whoever is limited stays so.
func TestFloodFreesNobody(t *testing.T) {
	p := startTunnels(t)
	try := func(addr, host, password string) int {
		c := visitor(t, addr)
		defer c.CloseIdleConnections()
		return ask(t, c, "POST", p.url+"/login?password="+password, host).status
	}
	began := time.Now()
	for range 10 {
		try("127.0.0.1", "a.tunnel.example", "guess")
	}
	if status := try("127.0.0.1", "a.tunnel.example", "guess"); status != 429 {
		t.Fatalf("the eleventh try: %d", status)
	}
	// Visitors who are back to full at once take no places.
	for i := range 100 {
		if status := try(fmt.Sprintf("127.2.%d.%d", i/250, i%250+1), "r.tunnel.example", "right"); status != 200 {
			t.Fatalf("right password %d: %d", i, status)
		}
	}
	// The flood, each at a tunnel of their own: 1,023 places are left, and the
	// shared limit has ten tries and one more each ten seconds.
	const flood, places, burst = 1200, 1023, 10
	var passed int
	for i := range flood {
		host := fmt.Sprintf("t%d.tunnel.example", i)
		switch status := try(fmt.Sprintf("127.1.%d.%d", i/250, i%250+1), host, "guess"); status {
		case 401:
			passed++
			if i < places && passed != i+1 {
				t.Fatalf("%d of the first %d passed", passed, i+1)
			}
		case 429:
			if i < places {
				t.Fatalf("newcomer %d was refused while there was a place", i)
			}
		default:
			t.Fatalf("newcomer %d: %d", i, status)
		}
	}
	earned := int(time.Since(began) / (10 * time.Second))
	// Each ten seconds give one try to the shared limit, and may make full
	// (and so forget) those who tried only once.
	if earned == 0 && passed != places+burst || passed < places+burst {
		t.Errorf("%d of %d newcomers passed, want %d", passed, flood, places+burst)
	}
	freed := 0
	for range 5 {
		if try("127.0.0.1", "a.tunnel.example", "guess") == 401 {
			freed++
		}
	}
	if earned = int(time.Since(began) / (10 * time.Second)); freed > earned {
		t.Errorf("after the flood the limited visitor had %d tries, and earned %d", freed, earned)
	}
	t.Logf("%d newcomers, %d passed, in %s", flood, passed, time.Since(began))
}
