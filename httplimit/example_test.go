package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// userOf finds the user of a session, "" if nobody is logged in.
func userOf(r *http.Request) string {
	cookie, err := r.Cookie("session")
	if err != nil {
		return ""
	}
	return map[string]string{"s3cr3t": "alice"}[cookie.Value]
}

// Users who are logged in are limited each for themselves, wherever they come
// from; all others by their address.
func ExampleNew() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })

	lim := spillgate.Must("1/m burst 2")
	handler := httplimit.New(lim, httplimit.User(userOf), httplimit.ClientIP())(mux)
	// http.ListenAndServe(":8080", handler)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Printf("%d %s wait %q\n", w.Code, w.Header().Get("RateLimit"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 "default";r=1;t=60 wait ""
	// 200 "default";r=0;t=120 wait ""
	// 429 "default";r=0;t=120 wait "60"
}

// Every visitor has a quota, and so have password attempts; the right password
// costs nothing.
func ExamplePolicy() {
	path := policy.Attribute{Kind: policy.Path}
	visitor, _ := policy.ParsePart("client.ip")
	pol, err := policy.Compile([]policy.Rule{{
		Name:  "visitor",
		Key:   []policy.Part{visitor},
		Limit: spillgate.Must("10/s burst 20").Limit(),
	}, {
		Name:  "password",
		Match: policy.Match{{Attribute: path, Values: []string{"/login"}}},
		Key:   []policy.Part{visitor},
		Limit: spillgate.Must("1/10s burst 2").Limit(),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	eng := policy.NewEngine(pol, spillgate.NewMemory())

	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(w http.ResponseWriter, r *http.Request) {
		v := policy.FromContext(r.Context())
		if r.FormValue("password") == "right" {
			v.GiveBack("password")
			fmt.Fprintln(w, "welcome")
			return
		}
		left, _ := v.Peek(r.Context(), "password")
		http.Error(w, fmt.Sprint(left.Remaining, " tries left"), http.StatusUnauthorized)
	})
	handler := httplimit.Policy(eng)(mux)
	// http.ListenAndServe(":8080", handler)

	for _, password := range []string{"wrong", "right", "guess", "again"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/login?password="+password, nil))
		if w.Code == http.StatusTooManyRequests {
			fmt.Println(w.Code, "retry after", w.Header().Get("Retry-After"), "s")
			continue
		}
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 401 1 tries left
	// 200 welcome
	// 401 0 tries left
	// 429 retry after 10 s
}
