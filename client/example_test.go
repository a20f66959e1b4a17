package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/client"
	"github.com/spillgate/spillgate/httplimit"
)

// A server that refuses the third request, and a client that comes back when
// it was told to.
func ExampleTransport() {
	lim := spillgate.Must("2/s burst 2")
	srv := httptest.NewServer(httplimit.New(lim)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})))
	defer srv.Close()

	c := http.Client{Transport: &client.Transport{
		Patience: client.Patience{Spread: -1},
		OnWait: func(_ *http.Request, w client.Wait) {
			fmt.Println(w.Status, "- told to wait for", w.For)
		},
	}}
	for range 3 {
		resp, err := c.Get(srv.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 200
	// 200
	// 429 - told to wait for 1s
	// 200
}

// Five calls a second for each host, and no more than were admitted at once.
func ExamplePacer() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer srv.Close()

	c := http.Client{Transport: &client.Pacer{Limiter: spillgate.Must("5/s")}}
	resp, err := c.Get(srv.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}
